package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// usage is what a process has used so far.
type usage struct {
	cpuUS   int64
	endedUS int64 // of children that have ended
	rssKB   int64
}

// processUsage reads Linux's /proc; elsewhere it reads nothing.
func processUsage(pid int) usage {
	var u usage
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u
	}
	// The name may hold blanks; the numbers begin after its closing bracket.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	ticks := func(i int) int64 { // of 1/100 s
		if i >= len(fields) {
			return 0
		}
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return n
	}
	u.cpuUS, u.endedUS = (ticks(11)+ticks(12))*10_000, (ticks(13)+ticks(14))*10_000
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			u.rssKB, _ = strconv.ParseInt(strings.Fields(value)[0], 10, 64)
		}
	}
	return u
}

// childrenOf finds the processes that a process has started. It reads Linux's /proc; elsewhere it finds none.
func childrenOf(parent int) []int {
	var list []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			list = append(list, pid)
		}
	}
	return list
}

// databaseCPU adds up a postmaster and its children, those that have ended included.
func databaseCPU(postmaster int) int64 {
	own := processUsage(postmaster)
	total := own.cpuUS + own.endedUS
	for _, pid := range childrenOf(postmaster) {
		total += processUsage(pid).cpuUS
	}
	return total
}

// pgbench is PostgreSQL's own simple-update load on the same server.
type pgbench struct {
	program, host, port, user, password string
}

const pgbenchDatabase = "pgbench"

func newPgbench(ctx context.Context, binDir, url string) (*pgbench, error) {
	program := filepath.Join(binDir, "pgbench")
	if _, err := os.Stat(program); err != nil {
		found, lookErr := exec.LookPath("pgbench")
		if lookErr != nil {
			return nil, fmt.Errorf("pgbench is not beside PostgreSQL (%s) and not on the PATH: it belongs to PostgreSQL's client or contrib package", binDir)
		}
		program = found
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	p := &pgbench{program: program, host: config.Host, port: strconv.Itoa(int(config.Port)), user: config.User, password: config.Password}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "create database "+pgbenchDatabase); err != nil {
		return nil, err
	}
	_, err = p.run(ctx, "-i", "-s", "20", "-q")
	return p, err
}

func (p *pgbench) run(ctx context.Context, args ...string) (string, error) {
	args = append(args, "-h", p.host, "-p", p.port, "-U", p.user, pgbenchDatabase)
	cmd := exec.CommandContext(ctx, p.program, args...)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+p.password)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("pgbench %s: %w: %.500s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

var tpsLine = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

// pgbenchSeconds is the least that pgbench is given: its clock runs while its clients connect, one after
// another, though its tps leave that out.
const pgbenchSeconds = 8

// simpleUpdate runs pgbench -N and returns transactions a second.
func (p *pgbench) simpleUpdate(ctx context.Context, clients int, seconds float64) (float64, error) {
	out, err := p.run(ctx, "-N", "-c", strconv.Itoa(clients), "-j", "2", "-T", strconv.Itoa(max(pgbenchSeconds, int(seconds))), "-n")
	if err != nil {
		return 0, err
	}
	match := tpsLine.FindStringSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("pgbench printed no tps: %.300s", out)
	}
	return strconv.ParseFloat(match[1], 64)
}

// twoCommits measures what two plain durable commits cost, one client: the median of one-row inserts,
// each its own transaction, times two.
func twoCommits(ctx context.Context, url string, seconds float64) (time.Duration, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, "create table if not exists bench_commits (id bigint primary key, body text)"); err != nil {
		return 0, err
	}
	var took []time.Duration
	base := time.Now().UnixNano()
	for end := time.Now().Add(time.Duration(seconds * float64(time.Second))); time.Now().Before(end); {
		began := time.Now()
		if _, err := conn.Exec(ctx, "insert into bench_commits values ($1, $2)", base+int64(len(took)), strings.Repeat("x", 200)); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	if _, err := conn.Exec(ctx, "drop table bench_commits"); err != nil {
		return 0, err
	}
	slices.Sort(took)
	return 2 * took[len(took)/2], nil
}
