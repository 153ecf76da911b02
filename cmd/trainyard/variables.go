package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// variable is the environment variable of a flag.
func variable(flag string) string {
	return "TRAINYARD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// applyVariables sets flags that were not given from their variables. An empty
// variable is none.
func applyVariables(cmd *cobra.Command, env func(string) (string, bool)) error {
	var first error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		value, ok := env(variable(f.Name))
		if !ok || value == "" || f.Changed || f.Name == "help" || first != nil {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			first = hint(usagef("%s: %s: %w", cmd.Name(), variable(f.Name), err),
				"the variable stands for --%s: %s", f.Name, f.Usage)
		}
	})
	return first
}

// required refuses a command without one of its flags.
func required(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f.Value.String() == "" {
			return hint(usagef("%s: --%s is missing", cmd.Name(), name),
				"%s; give it as --%s or in %s", f.Usage, name, variable(name))
		}
	}
	return nil
}

// oneOf is a flag that takes one of a few words.
type oneOf struct {
	value *string
	words []string
}

func choice(flags *pflag.FlagSet, value *string, name, short, initial, usage string, words ...string) {
	*value = initial
	flags.VarP(&oneOf{value: value, words: words}, name, short, usage+" ("+strings.Join(words, "|")+")")
}

func (o *oneOf) String() string { return *o.value }
func (o *oneOf) Type() string   { return "word" }

func (o *oneOf) Set(s string) error {
	for _, w := range o.words {
		if s == w {
			*o.value = s
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", s, strings.Join(o.words, ", "))
}
