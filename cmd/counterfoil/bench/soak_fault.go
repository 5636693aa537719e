package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// faultKind is one way in which a soak breaks things, in words.
type faultKind string

const (
	faultKill      faultKind = "gateway killed (SIGKILL)"
	faultTerm      faultKind = "gateway stopped (SIGTERM)"
	faultPause     faultKind = "gateway paused beyond its lease"
	faultDBKill    faultKind = "database killed (SIGKILL)"
	faultDBPause   faultKind = "database paused"
	faultUpKill    faultKind = "upstream killed (SIGKILL)"
	faultUpCut     faultKind = "upstream's connections cut"
	faultBothKills faultKind = "gateway and database killed"
)

func faultKinds() []faultKind {
	return []faultKind{faultKill, faultTerm, faultPause, faultDBKill, faultDBPause, faultUpKill, faultUpCut, faultBothKills}
}

const (
	mortal = 1 // the gateway that is killed; the other lives through it all, so that its memory can be judged

	recovery = time.Minute // until a call must succeed after a fault, on a busy machine
)

// sabotage makes faults until ctx ends: all kinds in a random order, and again. It leaves everything running. An
// error is the soak's own.
func (s *soak) sabotage(ctx context.Context, chance *rand.Rand) error {
	var bag []faultKind
	for rest(ctx, between(chance, 300*time.Millisecond, 1500*time.Millisecond)) {
		if len(bag) == 0 {
			bag = faultKinds()
			chance.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
		}
		kind := bag[0]
		bag = bag[1:]
		s.incidents.begin(kind)
		// What has begun is also mended when the time is up.
		if err := s.make(context.WithoutCancel(ctx), kind, chance); err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		if !s.overcome(ctx) && ctx.Err() == nil {
			s.report(foundProcess, "no call succeeded within "+recovery.String()+" after: "+string(kind))
		}
	}
	return nil
}

// overcome waits for a call that succeeds after the latest fault.
func (s *soak) overcome(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	for !s.incidents.overcome() {
		if !rest(ctx, 10*time.Millisecond) {
			return false
		}
	}
	return true
}

// between is a random time.
func between(chance *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(chance.Int64N(int64(most-least)))
}

func (s *soak) make(ctx context.Context, kind faultKind, chance *rand.Rand) error {
	f := s.fleet
	switch kind {
	case faultKill:
		f.nodes[mortal].process.kill()
		return f.revive(ctx, mortal)
	case faultTerm:
		return s.terminate(ctx)
	case faultPause:
		paused := f.nodes[chance.IntN(len(f.nodes))].process.cmd.Process.Pid
		return suspend(ctx, []int{paused}, soakLease+between(chance, 500*time.Millisecond, 2500*time.Millisecond))
	case faultDBKill:
		if err := f.killDatabase(); err != nil {
			return err
		}
		return f.reviveDatabase(ctx)
	case faultDBPause:
		return suspend(ctx, append([]int{f.db.PID()}, childrenOf(f.db.PID())...), between(chance, 500*time.Millisecond, 1500*time.Millisecond))
	case faultUpKill:
		f.upstream.kill()
		rest(ctx, between(chance, 0, 500*time.Millisecond))
		return persist(ctx, f.startUpstream)
	case faultUpCut:
		return f.cutUpstream(ctx)
	case faultBothKills:
		f.nodes[mortal].process.kill()
		if err := f.killDatabase(); err != nil {
			return err
		}
		if err := f.reviveDatabase(ctx); err != nil {
			return err
		}
		return f.revive(ctx, mortal)
	}
	return fmt.Errorf("no such fault: %s", kind)
}

// terminate asks a gateway to stop, which must lose nothing, and starts it again.
func (s *soak) terminate(ctx context.Context) error {
	process := s.fleet.nodes[mortal].process
	process.stopWithin(recovery)
	if status := process.cmd.ProcessState.ExitCode(); status != 0 {
		s.report(foundProcess, fmt.Sprintf("a gateway that was asked to stop ended with %s: %.300s", process.cmd.ProcessState, process.tail()))
	}
	return s.fleet.revive(ctx, mortal)
}

// suspend stops processes for a while. Those that have ended meanwhile do not matter.
func suspend(ctx context.Context, pids []int, d time.Duration) error {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	rest(ctx, d)
	var err error
	for _, pid := range slices.Backward(pids) {
		if failed := syscall.Kill(pid, syscall.SIGCONT); pid == pids[0] {
			err = failed
		}
	}
	return err
}
