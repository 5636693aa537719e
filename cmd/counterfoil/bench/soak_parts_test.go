package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestGrowthIsSeen: what swings is flat, what climbs is not.
func TestGrowthIsSeen(t *testing.T) {
	t.Parallel()
	samples := func(step float64) (list []sample) {
		for i := range 40 {
			swing := float64(i%4) * 5
			list = append(list, sample{
				at:  time.Duration(i) * 15 * time.Second,
				rss: (60 + swing + step*float64(i)) * (1 << 20), heap: 20 << 20, goroutines: 70 + swing, files: 40,
			})
		}
		return list
	}
	if flat := growths(samples(0)); slices.ContainsFunc(flat, func(g Growth) bool { return !g.Flat || g.Samples != 40 }) {
		t.Errorf("a flat run: %+v", flat)
	}
	leak := growths(samples(3))
	if leak[0].Flat || !leak[1].Flat || leak[0].PerMin < 11 || leak[0].PerMin > 13 {
		t.Errorf("a leak of 12 MB a minute: %+v", leak)
	}
	if short := growths(samples(3)[:3]); !short[0].Flat {
		t.Errorf("three samples are judged: %+v", short[0])
	}
	r := SoakReport{Fsck: "clean", Soak: SoakResult{Vitals: leak}}
	if err := r.verdict(); !errors.Is(err, ErrUnsound) {
		t.Errorf("a leak is no fault: %v", err)
	}
}

func TestABrokenPromiseVoidsTheSoak(t *testing.T) {
	t.Parallel()
	incidents := []incident{{kind: faultKill, next: time.Second, slowest: 2 * time.Second, uncertain: 3}, {kind: faultDBKill}, {kind: faultKill, uncertain: 1}}
	found := []violation{{class: foundLost, incident: 3}, {class: foundTwice, incident: 2}, {class: foundTwice}}
	rows := faultRows(incidents, found)
	want := FaultRow{Kind: faultKill, Tried: 2, Lost: 1, Uncertain: 4, NextMS: 1000, SlowestMS: 2000}
	if !slices.Contains(rows, want) || !slices.Contains(rows, FaultRow{Kind: faultDBKill, Tried: 1, Twice: 1}) || !slices.Contains(rows, FaultRow{Kind: noFault, Twice: 1}) {
		t.Errorf("rows %+v", rows)
	}
	var out strings.Builder
	r := SoakReport{Fsck: "clean", Soak: SoakResult{Faults: rows, Lost: 1, Twice: 2, Violations: 3, Found: []string{"sent twice: soak-1"}}}
	if err := r.print(&out); err != nil || !strings.Contains(out.String(), "answers lost: 1, sent twice: 2, other broken promises: 0; fsck: clean") {
		t.Errorf("printed %v:\n%s", err, out.String())
	}
	for name, r := range map[string]SoakReport{"a violation": r, "a broken row": {Fsck: "I6 broken"}} {
		if err := r.verdict(); !errors.Is(err, ErrUnsound) {
			t.Errorf("%s: %v, want ErrUnsound", name, err)
		}
	}
	if err := (&SoakReport{Fsck: "clean"}).verdict(); err != nil {
		t.Errorf("a sound soak: %v", err)
	}
}

// TestIncidentsOwnWhatLivedThroughThem: a call that began before a fault and was answered after it is that fault's.
func TestIncidentsOwnWhatLivedThroughThem(t *testing.T) {
	t.Parallel()
	var s incidents
	if n := s.answered(time.Now(), callKind{}, "succeeded"); n != 0 || !s.overcome() {
		t.Errorf("before the first fault: incident %d", n)
	}
	before := time.Now()
	s.begin(faultKill)
	s.begin(faultUpCut)
	if n := s.answered(before, callKind{}, "delivery_uncertain"); n != 1 || s.overcome() {
		t.Errorf("a call that lived through both: incident %d, overcome %t", n, s.overcome())
	}
	if n := s.answered(time.Now(), callKind{silent: true}, "delivery_uncertain"); n != 2 || s.overcome() {
		t.Errorf("a call after both: incident %d", n)
	}
	s.answered(time.Now(), callKind{}, "succeeded")
	all := s.all()
	if !s.overcome() || s.current() != 2 || all[0].uncertain != 1 || all[1].uncertain != 0 || all[0].slowest <= 0 || all[1].next <= 0 {
		t.Errorf("incidents %+v", all)
	}
}

// TestTheSaboteurKeepsItsJournal: what has acted is in the journal, whatever was answered, and stays there.
func TestTheSaboteurKeepsItsJournal(t *testing.T) {
	t.Parallel()
	journal := filepath.Join(t.TempDir(), "effects")
	if err := os.WriteFile(journal, []byte("old soak-0\nhalf a li"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := saboteurAt(t, journal)
	want := []effect{{"old", "soak-0"}}
	for i, test := range []struct {
		mode   string
		acts   bool
		says   string // "" no answer
		status int
	}{
		{modeOK, true, `"paid"`, 200},
		{modeSlow, true, `"paid"`, 200},
		{modeFailed, true, `"isError":true`, 200},
		{modeStatus, true, "internal error", 500},
		{modeGarbage, true, "more or less", 200},
		{modeDrop, true, "", 0},
		{modeHalf, true, "", 0},
		{modeSilent, true, "", 0},
		{modeUndone, false, `"isError":true`, 200},
		{modeRefused, false, "-32602", 200},
	} {
		n := i + 1
		status, text := callSaboteur(t, url, callKind{tool: toolFlaky, mode: test.mode}, n)
		if status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%q: HTTP %d: %s", test.mode, status, text)
		}
		if test.acts {
			want = append(want, effect{"key-" + test.mode, fmt.Sprint(keyPrefix, n)})
		}
		if got, err := readJournal(journal); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q: journal %v, %v; want %v", test.mode, got, err, want)
		}
	}
}

// saboteurAt runs the soak's upstream for a test.
func saboteurAt(t *testing.T, journal string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeSaboteur(ctx, anyPort, journal, write) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	line := make([]byte, 100)
	n, err := read.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(line[:n]))
}

// callSaboteur sends call n as a gateway does; status 0 is a broken connection, or no answer in time.
func callSaboteur(t *testing.T, url string, k callKind, n int) (status int, text string) {
	t.Helper()
	patience := time.Minute
	if k.mode == modeSilent {
		patience = 300 * time.Millisecond
	}
	req, err := newCall(t.Context(), url, "", soakBody(account{}, k, n, usualAmount))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "key-"+k.mode)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := exchange(client, req)
	if err != nil {
		return 0, ""
	}
	return res.status, string(res.body)
}
