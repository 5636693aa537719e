package bench

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample is what a gateway said of itself at one moment.
type sample struct {
	at                           time.Duration // since the load began
	rss, heap, goroutines, files float64
}

// Metrics of the gateway that must not grow.
const (
	metricRSS        = "process_resident_memory_bytes"
	metricHeap       = "go_memstats_heap_inuse_bytes"
	metricGoroutines = "go_goroutines"
	metricFiles      = "process_open_fds"
)

// takeSample reads a gateway's metrics.
func takeSample(ctx context.Context, base string) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text, err := fetch(ctx, base+"/metrics")
	if err != nil {
		return sample{}, err
	}
	m := readMetrics(string(text))
	return sample{rss: m[metricRSS], heap: m[metricHeap], goroutines: m[metricGoroutines], files: m[metricFiles]}, nil
}

// readMetrics reads the metrics that have no labels.
func readMetrics(text string) map[string]float64 {
	values := make(map[string]float64)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			values[name] = n
		}
	}
	return values
}

// Growth is one figure of a gateway over the load: medians of three quarters of the samples. Flat compares the last with
// the second, since the first holds the start.
type Growth struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	First    float64 `json:"first_quarter_median"`
	Second   float64 `json:"second_quarter_median"`
	Last     float64 `json:"last_quarter_median"`
	Bound    float64 `json:"bound"` // the last may be so much at most
	PerMin   float64 `json:"slope_per_minute"`
	Samples  int     `json:"samples"`
	Flat     bool    `json:"flat"`
	relative float64
	absolute float64
}

// title is the name with its unit.
func (g *Growth) title() string {
	if g.Unit == "" {
		return g.Name
	}
	return g.Name + ", " + g.Unit
}

// growths judges what was sampled.
func growths(samples []sample) []Growth {
	list := []Growth{
		// A collector that lets garbage grow to four times the live heap swings; a leak of a kilobyte a call does not fit in.
		{Name: "resident memory", Unit: "MB", relative: 1.25, absolute: 32},
		{Name: "heap in use", Unit: "MB", relative: 1.25, absolute: 32},
		// A few for each call in flight and for each whose caller has left; one that leaks in a hundred calls does not fit in.
		{Name: "goroutines", Unit: "", relative: 1.25, absolute: 150},
		{Name: "open files", Unit: "", relative: 1.25, absolute: 100},
	}
	figures := []func(sample) float64{
		func(s sample) float64 { return s.rss / (1 << 20) },
		func(s sample) float64 { return s.heap / (1 << 20) },
		func(s sample) float64 { return s.goroutines },
		func(s sample) float64 { return s.files },
	}
	for i := range list {
		list[i].judge(samples, figures[i])
	}
	return list
}

// judge fills a growth in. Fewer than four samples judge nothing: a load so short shows no growth.
func (g *Growth) judge(samples []sample, figure func(sample) float64) {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = figure(s)
	}
	g.Samples, g.Flat = len(values), true
	quarter := len(values) / 4
	if quarter == 0 {
		return
	}
	g.First, g.Second, g.Last = median(values[:quarter]), median(values[quarter:2*quarter]), median(values[len(values)-quarter:])
	g.Bound = g.Second*g.relative + g.absolute
	g.PerMin = slope(samples, values)
	g.Flat = g.Last <= g.Bound
}

func median(values []float64) float64 {
	var s Series
	s.Rounds = slices.Clone(values[1:])
	s.add(values[0])
	return s.Median
}

// slope is the least-squares growth in a minute.
func slope(samples []sample, values []float64) float64 {
	var meanX, meanY, xy, xx float64
	n := float64(len(values))
	for i, s := range samples {
		meanX += s.at.Minutes() / n
		meanY += values[i] / n
	}
	for i, s := range samples {
		dx := s.at.Minutes() - meanX
		xy += dx * (values[i] - meanY)
		xx += dx * dx
	}
	if xx == 0 {
		return 0
	}
	return xy / xx
}
