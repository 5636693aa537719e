//go:build unix && !linux && !aix && !solaris

package testdb

const memoryDir = ""

func roomInMemory() bool { return false }
