package e2e_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// vitals are what grows where something leaks.
type vitals struct {
	goroutines, files float64
	heap              float64 // bytes
}

func (v vitals) String() string {
	return fmt.Sprintf("%.0f goroutines, %.0f files, %.1f MB", v.goroutines, v.files, v.heap/1e6)
}

// vitals asks a gateway for its own; ok is false where it does not answer.
func (s *system) vitals(url string) (v vitals, ok bool) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url + "/metrics")
	if err != nil {
		return v, false
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseFloat(text, 64)
		switch name {
		case "go_goroutines":
			v.goroutines = n
		case "process_open_fds":
			v.files = n
		case "go_memstats_heap_inuse_bytes":
			v.heap = n
		}
	}
	return v, v.goroutines > 0 && v.files > 0 && v.heap > 0
}

// rest waits until a gateway's vitals no longer fall, and gives them.
func (s *system) rest(t *testing.T, url string) vitals {
	t.Helper()
	s.raw.CloseIdleConnections()
	var last vitals
	since := time.Now()
	eventually(t, "a gateway at rest", func() bool {
		v, ok := s.vitals(url)
		if !ok || v.goroutines < last.goroutines || v.files < last.files || last.goroutines == 0 {
			last, since = v, time.Now()
		}
		return time.Since(since) > 500*time.Millisecond
	})
	return last
}

// restored waits until a gateway is again as it was before.
func (s *system) restored(t *testing.T, url string, before vitals) {
	t.Helper()
	s.raw.CloseIdleConnections()
	var v vitals
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var ok bool
		v, ok = s.vitals(url)
		// A few more connections to the database and to the tool may be open than before.
		if ok && v.goroutines <= before.goroutines+40 && v.files <= before.files+20 && v.heap <= before.heap+32e6 {
			t.Logf("before: %s; after: %s", before, v)
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("before: %s; after: %s", before, v)
		}
		<-tick.C
	}
}

// limited starts another gateway of the system. upstream is more of its upstream's line, limits are its own.
func (s *system) limited(t *testing.T, upstream, limits string) (p *process, url string) {
	t.Helper()
	listen := freeAddress(t)
	path := s.configure(t, "limited-"+strings.ReplaceAll(listen, ":", "-")+".yaml", listen, toolLines)
	text := string(readFile(t, path))
	if upstream != "" {
		text = strings.Replace(text, "timeout: 60s", "timeout: 60s, "+upstream, 1)
	}
	text = strings.TrimSuffix(text, s.limits+"\n") + "limits: " + limits + "\n"
	writeFile(t, path, text)
	p, url = serve(t, path), "http://"+listen
	s.described(t, url)
	return p, url
}

// metric adds up the samples of the first gateway's metrics that begin with a text.
func (s *system) metric(t *testing.T, begins string) float64 {
	t.Helper()
	resp, err := s.raw.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	total := 0.0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, begins) {
			n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			total += n
		}
	}
	return total
}
