package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"counterfoil/receipts"
	"counterfoil/verify"
)

// printer shows verdicts as they come, and then the one on all of them.
type printer interface {
	receipt(d *verify.Verdict) error
	summary(s verify.Summary) error
}

func (o *options) printer(out io.Writer, alone bool) printer {
	switch {
	case o.quiet:
		return &textPrinter{out: io.Discard}
	case o.json:
		return &jsonPrinter{out: out}
	case o.jsonl:
		return &jsonPrinter{out: out, lines: true}
	}
	return &textPrinter{out: out, alone: alone}
}

// textPrinter writes for people: all checks where there is one receipt, otherwise a
// line for each and what is wrong with it.
type textPrinter struct {
	out   io.Writer
	alone bool
	err   error
}

func (p *textPrinter) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format, args...)
	}
}

func (p *textPrinter) receipt(d *verify.Verdict) error {
	p.printf("%-9s %s", strings.ToUpper(string(d.State)), place(d))
	if c := d.Claims; c != nil {
		p.printf("  %s  %s #%d  %s", c.ID, c.Wallet, c.Seq, outcome(d))
	}
	p.printf("\n")
	if c := d.Claims; c != nil && p.alone {
		p.printf("  operation      %s, tool %q, agent %s, permit %s\n", c.Operation, c.Tool, c.Agent, c.PermitID)
		p.printf("  credits        charged %d of %d authorized\n", c.Charged, c.Authorized)
		p.printf("  issuer         %s\n", printable(c.Issuer))
		p.reconciles(c)
	}
	if k := d.Key; k != nil && p.alone {
		p.printf("  key            %s, %s, trusted by %s\n", k.ID, orNone(k.Status), printable(k.Source))
	}
	for _, c := range d.Checks {
		if p.alone || c.Status == verify.Fail || c.Status == verify.NotChecked && c.Code != verify.NotReached {
			p.check("  ", c)
		}
	}
	return p.err
}

// reconciles says what was decided about, and what whoever holds the evidence can
// compare it with.
func (p *textPrinter) reconciles(c *receipts.Claims) {
	if r := c.Reconciles; r != nil {
		p.printf("  resolves       %s, which charged %d and was uncertain%s\n", r.ID, r.ChargedBefore, because(c.Reason))
		p.printf("  evidence       sha256 %s\n", r.EvidenceSHA256)
	}
}

func because(r receipts.Reason) string {
	if r == "" {
		return ""
	}
	return " (" + string(r) + ")"
}

func (p *textPrinter) check(indent string, c verify.Check) {
	p.printf("%s%-14s %s", indent, c.Name, c.Status)
	if c.Code != verify.OK {
		row, _ := verify.Explain(c.Code)
		p.printf("  %s  %s", c.Code, row.Sentence)
		if c.Status == verify.Fail || row.Undecided {
			p.printf(" Next: %s", row.Next)
		}
	}
	if c.Detail != "" {
		p.printf("  [%s]", printable(c.Detail))
	}
	p.printf("\n")
}

func (p *textPrinter) summary(s verify.Summary) error {
	p.printf("%s: %d receipts, %d valid, %d invalid, %d undecided\n",
		strings.ToUpper(word(s.Exit)), s.Counts.Total, s.Counts.Valid, s.Counts.Invalid, s.Counts.Undecided)
	for _, c := range s.Set {
		if c.Code != verify.NotReached {
			p.check("  ", c)
		}
	}
	p.printf("Not proven: %s.\n", strings.Join(verify.NotProven(), "; "))
	return p.err
}

// outcome reads a receipt as a person would want it read: an uncertain one as
// uncertain, and a superseded one as no longer the last word.
func outcome(d *verify.Verdict) string {
	c := d.Claims
	out := string(c.Outcome)
	switch {
	case c.Outcome == receipts.Reconciled:
		out += " (" + c.Reconciles.Resolution + ")"
	case c.Reason != "":
		out += " (" + string(c.Reason) + ")"
	}
	switch later := d.SupersededBy; {
	case later != nil:
		out += fmt.Sprintf(", superseded by %s: %s, %d charged", later.ID, later.Reconciles.Resolution, later.Charged)
	case c.DuplicateOf != "":
		out += ": " + c.DuplicateOf + " came first"
	case c.Outcome == receipts.Uncertain:
		out += ": the tool may have acted"
	}
	return out
}

func place(d *verify.Verdict) string {
	name := printable(d.File)
	if name == "-" {
		name = "standard input"
	}
	if d.Line > 1 {
		return fmt.Sprintf("%s:%d", name, d.Line)
	}
	return name
}

// word names an exit status in summaries.
func word(exit int) string {
	switch exit {
	case 0:
		return "valid"
	case 1:
		return "invalid"
	case 4:
		return "set invalid"
	}
	return "undecided"
}

func orNone(status string) string {
	if status == "" {
		return "no status"
	}
	return status
}

// printable keeps what a receipt holds from steering the reader's terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// jsonPrinter writes for programs.
type jsonPrinter struct {
	out   io.Writer
	lines bool
	begun bool
}

func (p *jsonPrinter) receipt(d *verify.Verdict) error {
	data, err := json.Marshal(toWire(d))
	if err != nil {
		return err
	}
	switch {
	case p.lines:
		_, err = fmt.Fprintf(p.out, "%s\n", data)
	case p.begun:
		_, err = fmt.Fprintf(p.out, ",\n%s", data)
	default:
		_, err = fmt.Fprintf(p.out, "{\"receipts\":[\n%s", data)
	}
	p.begun = true
	return err
}

func (p *jsonPrinter) summary(s verify.Summary) error {
	data, err := json.Marshal(wireSummary{
		Verdict: word(s.Exit), Exit: s.Exit, Receipts: s.Counts.Total,
		Valid: s.Counts.Valid, Invalid: s.Counts.Invalid, Undecided: s.Counts.Undecided,
		Set: toWireChecks(s.Set), NotProven: verify.NotProven(),
	})
	if err != nil {
		return err
	}
	if p.lines {
		_, err = fmt.Fprintf(p.out, "{\"summary\":%s}\n", data)
		return err
	}
	_, err = fmt.Fprintf(p.out, "],\n\"summary\":%s}\n", data)
	return err
}
