package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"strings"

	"counterfoil/verify"
)

const usage = `Usage: counterfoil-verify --trust FILE [flags] FILE... | -
       counterfoil-verify explain [CODE]
       counterfoil-verify version

Judges Counterfoil bundles, bare receipts (*.jws), and JSONL of either. No network.

  --trust FILE      keys you believe: a saved jwks.json or a PEM public key; repeatable
  --issuer URL      the gateway that must have issued every receipt
  --arguments FILE  the call's arguments, to compare with their hash (one receipt only)
  --result FILE     the stored result's exact bytes, likewise
  --require LIST    checks that must pass: permit,content,chain
  --json            one JSON document
  --jsonl           one JSON line a receipt, then one for all
  --quiet           the exit status alone
  --jobs N          receipts judged at a time (default: the processors)
  --progress        count on standard error

Exit status: 0 valid; 1 something is proven wrong; 2 usage, nothing judged; 3 nothing
is proven wrong, but something could not be decided; 4 each is valid, the set is not.
`

type options struct {
	trust, files      []string
	issuer            string
	arguments, result string
	require           []string // checks of a receipt
	requireSet        []string // checks of the set
	json, jsonl       bool
	quiet, progress   bool
	jobs              int
}

var errHelp = errors.New("help")

// parseFlags takes flags before, between and after the files.
func parseFlags(args []string) (options, error) {
	var o options
	var require, policy string
	fs := flag.NewFlagSet("counterfoil-verify", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Func("trust", "", func(s string) error { o.trust = append(o.trust, s); return nil })
	fs.StringVar(&policy, "policy", "", "")
	fs.StringVar(&o.issuer, "issuer", "", "")
	fs.StringVar(&o.arguments, "arguments", "", "")
	fs.StringVar(&o.result, "result", "", "")
	fs.StringVar(&require, "require", "", "")
	fs.BoolVar(&o.json, "json", false, "")
	fs.BoolVar(&o.jsonl, "jsonl", false, "")
	fs.BoolVar(&o.quiet, "quiet", false, "")
	fs.BoolVar(&o.progress, "progress", false, "")
	fs.IntVar(&o.jobs, "jobs", runtime.GOMAXPROCS(0), "")
	for {
		before := len(args)
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			return o, errHelp
		} else if err != nil {
			return o, err
		}
		rest := fs.Args()
		if used := before - len(rest); used > 0 && args[used-1] == "--" {
			o.files = append(o.files, rest...)
			break
		}
		if len(rest) == 0 {
			break
		}
		o.files, args = append(o.files, rest[0]), rest[1:]
	}
	if err := o.setRequire(require); err != nil {
		return o, err
	}
	return o, o.check(fs, policy)
}

func (o *options) setRequire(list string) error {
	if list == "" {
		return nil
	}
	for name := range strings.SplitSeq(list, ",") {
		switch name {
		case "permit":
			o.require = append(o.require, verify.CheckPermit)
		case "content":
			o.require = append(o.require, verify.CheckArguments, verify.CheckResult)
		case "chain":
			o.requireSet = append(o.requireSet, verify.CheckChain)
		case "inclusion", "witness":
			return fmt.Errorf("--require %s is not in this version: it makes and reads no public log, so nothing was judged", name)
		default:
			return fmt.Errorf("--require knows permit, content and chain, not %q", name)
		}
	}
	return nil
}

func (o *options) check(fs *flag.FlagSet, policy string) error {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case given["policy"]:
		return fmt.Errorf("--policy is not in this version: it reads no public log, so %q says nothing and nothing was judged", policy)
	case len(o.trust) == 0:
		return errors.New("no --trust: a receipt proves nothing without a key that you believe")
	case len(o.files) == 0:
		return errors.New("no file to judge; - reads standard input")
	case given["issuer"] && o.issuer == "":
		return errors.New("--issuer is empty")
	case o.json && o.jsonl:
		return errors.New("--json and --jsonl exclude each other")
	case o.jobs < 1 || o.jobs > 1024:
		return errors.New("--jobs must be 1 to 1024")
	}
	return nil
}
