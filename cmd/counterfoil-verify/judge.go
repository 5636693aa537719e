package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"

	"counterfoil/receipts"
	"counterfoil/verify"
)

// progressEvery is how many receipts lie between two lines of --progress.
const progressEvery = 10000

func judge(args []string, in io.Reader, out, errOut io.Writer) int {
	o, err := parseFlags(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(out, usage)
		return exitOK
	}
	if err != nil {
		return refuse(errOut, err)
	}
	asked, err := o.asked()
	if err != nil {
		return refuse(errOut, err)
	}
	entries, several, stop := peek(o.entries(in))
	defer stop()
	if several && (asked.Arguments != nil || asked.Result != nil) {
		return refuse(errOut, errors.New("--arguments and --result are of one receipt, and there are several"))
	}
	buffered := bufio.NewWriterSize(out, 64<<10)
	sum, err := o.judgeAll(verify.New(asked), entries, o.printer(buffered, !several), errOut)
	if err = errors.Join(err, buffered.Flush()); err != nil {
		fmt.Fprintf(errOut, "counterfoil-verify: %v\n", err)
		return max(exitUndecided, sum.Exit)
	}
	return sum.Exit
}

func refuse(errOut io.Writer, err error) int {
	fmt.Fprintf(errOut, "counterfoil-verify: %s\nRun counterfoil-verify --help for the flags.\n", printable(err.Error()))
	return exitUsage
}

func (o *options) judgeAll(v *verify.Verifier, entries iter.Seq[verify.Entry], p printer, errOut io.Writer) (verify.Summary, error) {
	set := verify.NewSet()
	err := v.Each(entries, o.jobs, func(d *verify.Verdict) error {
		set.Add(d)
		if n := set.Counts().Total; o.progress && n%progressEvery == 0 {
			fmt.Fprintf(errOut, "counterfoil-verify: %d judged\n", n)
		}
		return p.receipt(d)
	})
	sum := set.Summary(o.requireSet)
	if err != nil {
		return sum, err
	}
	if o.progress {
		fmt.Fprintf(errOut, "counterfoil-verify: %d judged, done\n", sum.Counts.Total)
	}
	return sum, p.summary(sum)
}

// asked reads what the flags name. A trust or content file that cannot be read
// leaves nothing to judge with.
func (o *options) asked() (verify.Options, error) {
	asked := verify.Options{Trust: &verify.Trust{}, Issuer: o.issuer, Require: o.require}
	for _, name := range o.trust {
		data, err := readFile(name)
		if err != nil {
			return asked, fmt.Errorf("--trust: %w", err)
		}
		if err := asked.Trust.Add(name, data); err != nil {
			return asked, fmt.Errorf("--trust: %w", err)
		}
	}
	var err error
	if o.arguments != "" {
		if asked.Arguments, err = readFile(o.arguments); err != nil {
			return asked, fmt.Errorf("--arguments: %w", err)
		}
	}
	if o.result != "" {
		if asked.Result, err = readFile(o.result); err != nil {
			return asked, fmt.Errorf("--result: %w", err)
		}
	}
	return asked, nil
}

// readFile never returns nil without an error: an empty file is content, too.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, receipts.MaxBundleBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > receipts.MaxBundleBytes {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, receipts.MaxBundleBytes)
	}
	return data, nil
}

// entries reads the files one after the other. One that cannot be opened is an
// entry that could not be judged, and the others are judged all the same.
func (o *options) entries(in io.Reader) iter.Seq[verify.Entry] {
	return func(yield func(verify.Entry) bool) {
		for _, name := range o.files {
			if !eachEntry(name, in, yield) {
				return
			}
		}
	}
}

func eachEntry(name string, in io.Reader, yield func(verify.Entry) bool) bool {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return yield(verify.Entry{File: name, Fault: verify.Unreadable, Detail: err.Error()})
		}
		defer f.Close()
		in = f
	}
	for e := range verify.Entries(name, in) {
		if !yield(e) {
			return false
		}
	}
	return true
}

// peek tells one entry from several, before the first is judged, and returns the
// same sequence.
func peek(entries iter.Seq[verify.Entry]) (all iter.Seq[verify.Entry], several bool, stop func()) {
	next, stop := iter.Pull(entries)
	var first []verify.Entry
	for len(first) < 2 {
		e, ok := next()
		if !ok {
			return slices.Values(first), false, stop
		}
		first = append(first, e)
	}
	return func(yield func(verify.Entry) bool) {
		for e, ok := first[0], true; ok; e, ok = next() {
			if !yield(e) {
				return
			}
			if len(first) == 2 {
				if second := first[1]; !yield(second) {
					return
				}
				first = first[:1]
			}
		}
	}, true, stop
}
