package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"counterfoil/cmd/counterfoil/config"
)

const (
	exitOK      = 0
	exitFailed  = 1
	exitRefused = 2
)

// app is what the commands share: the environment as it was given, and the two outputs.
type app struct {
	env    map[string]string
	out    io.Writer
	errOut io.Writer
}

func newApp(env []string, out, errOut io.Writer) *app {
	a := &app{env: make(map[string]string, len(env)), out: out, errOut: errOut}
	for _, pair := range env {
		if name, value, ok := strings.Cut(pair, "="); ok {
			a.env[name] = value
		}
	}
	return a
}

// ranError marks an error of a command that was understood and ran. What is not marked is a
// mistake in the command line, because cobra found it before any command ran.
type ranError struct {
	code int
	err  error
}

func (e *ranError) Error() string { return e.err.Error() }
func (e *ranError) Unwrap() error { return e.err }

// refused is for what was wrong before anything was done: a bad configuration, keys that are missing.
func refused(err error) error { return &ranError{code: exitRefused, err: err} }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "counterfoil",
		Short:         "A gateway that lets agents act under signed permits, once, with a receipt",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run a gateway:"},
		&cobra.Group{ID: "operate", Title: "Operate a running gateway:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run", a.demoCommand(), a.serveCommand(), a.checkCommand(), a.migrateCommand(), a.keysCommand(),
		a.fsckCommand(), a.benchCommand())
	add("operate", a.agentCommand(), a.walletCommand(), a.permitCommand(), a.toolCommand(),
		a.operationCommand(), a.receiptCommand(), a.doctorCommand())
	root.AddCommand(a.versionCommand())
	return root
}

// does makes a command's body: its error is marked as one of a command that ran.
func does(body func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := body(cmd.Context(), args)
		if err == nil {
			return nil
		}
		var ran *ranError
		if errors.As(err, &ran) {
			return err
		}
		return &ranError{code: exitFailed, err: err}
	}
}

// family is a command that only holds others; a word that is none of them is an error, not a help page.
func family(use, short, example string, members ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(members...)
	return c
}

// takes is the arguments of a command, by their names.
func takes(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return fmt.Errorf("%s takes %s, and was given %d of %d", c.CommandPath(), strings.Join(names, " and "), len(args), len(names))
		}
		return nil
	}
}

// exit says what went wrong, once, and turns it into the status of the process.
func (a *app) exit(command *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	code := exitRefused
	var ran *ranError
	if errors.As(err, &ran) {
		code = ran.code
	}
	var faults config.Faults
	if errors.As(err, &faults) {
		fmt.Fprintf(a.errOut, "counterfoil: %s\n", faults.Headline())
		for _, f := range faults {
			fmt.Fprintf(a.errOut, "  %s\n", f)
		}
		return code
	}
	fmt.Fprintf(a.errOut, "counterfoil: %s\n", err)
	if ran == nil {
		fmt.Fprintf(a.errOut, "See: %s --help\n", command.CommandPath())
	}
	return code
}
