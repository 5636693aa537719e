package testdb

import "syscall"

const (
	memoryDir = "/dev/shm"
	memoryMin = 2 << 30 // bytes
)

// roomInMemory says whether servers may live in memory.
func roomInMemory() bool {
	var st syscall.Statfs_t
	if err := syscall.Statfs(memoryDir, &st); err != nil {
		return false
	}
	const write = 2
	return syscall.Access(memoryDir, write) == nil && st.Bavail*uint64(st.Bsize) > memoryMin
}
