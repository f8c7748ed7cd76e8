package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/spec"
	"attune/internal/terminal"
)

// helpWidth is the width of a help page, in columns.
const helpWidth = 80

// exitLine ends every help page. The codes themselves are a help topic.
const exitLine = "Exit codes: attune help exit-codes"

// commandGroups are the groups of the commands on the first help page, in their order, each with
// its commands.
var commandGroups = []struct {
	id, title string
	commands  []string
}{
	{"start", "Start:", []string{"help", "doctor", "toolchain", "init", "run", "watch", "list"}},
	{"measure", "Measure:", []string{"build", "sim", "exec", "compare", "bench", "profile", "predict", "accuracy", "mutate", "tune", "export"}},
	{"inspect", "Inspect:", []string{"history", "show", "report", "serve"}},
	{"records", "Records and fleets:", []string{"promote", "rollback", "reproduce", "ledger", "worker", "fleet", "version", "completion"}},
}

// addHelp adds the groups, the topics and the help command, and completes the help of every
// command.
func addHelp(root *cobra.Command) {
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(g.commands, cmd.Name()) { // help and completion, which come later, have none
				cmd.GroupID = g.id
			}
		}
	}
	root.AddCommand(topics()...)
	root.SetHelpCommand(helpCommand(root))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		// Without standard output there is nowhere left to report to.
		_, _ = fmt.Fprintln(cmd.OutOrStdout(), strings.TrimSpace(cmd.Long+"\n\n"+usage(cmd)))
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(cmd.OutOrStderr(), usage(cmd))
		return err
	})
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Short = "print the completion script of a shell"
			cmd.Args, cmd.RunE = noSuchCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		completeHelp(cmd)
	}
}

// completeHelp adds a description and an example to the help of a command and its subcommands.
func completeHelp(cmd *cobra.Command) {
	if cmd.Long == "" {
		cmd.Long = strings.ToUpper(cmd.Short[:1]) + cmd.Short[1:] + "."
	}
	cmd.Long = wrapHelp(strings.ReplaceAll(strings.TrimSpace(cmd.Long), "\t", "  "))
	if cmd.Example == "" && !isTopic(cmd) {
		cmd.Example = "  " + cmd.CommandPath()
	}
	for _, sub := range cmd.Commands() {
		completeHelp(sub)
	}
}

// wrapHelp breaks the lines of a help text that are too wide, such as those of generated texts.
func wrapHelp(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if len([]rune(line)) > helpWidth {
			lines[i] = wrapped(line, helpWidth)
		}
	}
	return strings.Join(lines, "\n")
}

// usage is the part of a help page after the description.
func usage(cmd *cobra.Command) string {
	var out strings.Builder
	if isTopic(cmd) {
		return ""
	}
	section := func(title, text string) {
		if text = strings.TrimRight(text, " \n"); text != "" {
			fmt.Fprintf(&out, "%s\n%s\n\n", title, text)
		}
	}
	use := "  " + cmd.UseLine()
	if !cmd.Runnable() || cmd.HasAvailableSubCommands() {
		use = "  " + cmd.CommandPath() + " COMMAND [flags]"
	}
	section("Usage:", use)
	section("Examples:", cmd.Example)
	for _, g := range cmd.Groups() {
		section(g.Title, commandList(cmd, func(sub *cobra.Command) bool { return groupOf(sub) == g.ID }))
	}
	other := "Other:"
	if len(cmd.Groups()) == 0 {
		other = "Available Commands:"
	}
	section(other, commandList(cmd, func(sub *cobra.Command) bool { return groupOf(sub) == "" && !isTopic(sub) }))
	section("Topics (attune help TOPIC):", topicNames(cmd))
	own, elsewhere := describedFlags(cmd.LocalFlags())
	section("Flags:", own.FlagUsagesWrapped(helpWidth))
	for _, topic := range slices.Sorted(maps.Keys(elsewhere)) {
		fmt.Fprintf(&out, "More flags: %s (attune help %s)\n", strings.Join(elsewhere[topic], ", "), topic)
	}
	if globals := globalFlags(cmd); globals != "" {
		fmt.Fprintf(&out, "Global flags: %s (attune --help)\n", globals)
	}
	out.WriteString(exitLine + "\n")
	return out.String()
}

// topicNames lists the topics of a command in few lines: with one each the first page is too long.
func topicNames(cmd *cobra.Command) string {
	var names []string
	for _, sub := range cmd.Commands() {
		if isTopic(sub) {
			names = append(names, sub.Name())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "  " + strings.Join(terminal.Wrap(strings.Join(names, ", "), helpWidth-2), "\n  ")
}

// groupOf is the group of a command on the first help page.
func groupOf(cmd *cobra.Command) string {
	for _, g := range commandGroups {
		if slices.Contains(g.commands, cmd.Name()) && cmd.Parent() == cmd.Root() {
			return g.id
		}
	}
	return ""
}

// commandList lists some of the subcommands of a command, those of a group in the group's order.
func commandList(cmd *cobra.Command, include func(*cobra.Command) bool) string {
	place := func(c *cobra.Command) int {
		for _, g := range commandGroups {
			if g.id == groupOf(c) {
				return slices.Index(g.commands, c.Name())
			}
		}
		return 0
	}
	var subs []*cobra.Command
	for _, sub := range cmd.Commands() {
		if include(sub) && (sub.IsAvailableCommand() || isTopic(sub) || sub.Name() == "help") {
			subs = append(subs, sub)
		}
	}
	slices.SortStableFunc(subs, func(a, b *cobra.Command) int { return cmp.Compare(place(a), place(b)) })
	var out strings.Builder
	for _, sub := range subs {
		fmt.Fprintf(&out, "  %-10s  %s\n", sub.Name(), sub.Short)
	}
	return out.String()
}

// topicAnnotation is the help topic that describes a flag, in place of the pages of commands.
const topicAnnotation = "attune_topic"

// describeIn makes a topic describe a flag that several commands have.
func describeIn(f *pflag.FlagSet, topic, flag string) {
	_ = f.SetAnnotation(flag, topicAnnotation, []string{topic}) // it fails only for a flag that does not exist
}

// describedFlags splits flags into those that the page of a command describes, and the names of
// those that topics describe.
func describedFlags(all *pflag.FlagSet) (own *pflag.FlagSet, elsewhere map[string][]string) {
	own, elsewhere = pflag.NewFlagSet("", pflag.ContinueOnError), map[string][]string{}
	all.VisitAll(func(f *pflag.Flag) {
		if topic := f.Annotations[topicAnnotation]; topic != nil && f.Hidden {
			return
		} else if topic != nil {
			elsewhere[topic[0]] = append(elsewhere[topic[0]], "--"+f.Name)
			return
		}
		own.AddFlag(f)
	})
	return own, elsewhere
}

// globalFlags lists the flags that a command has from the program.
func globalFlags(cmd *cobra.Command) string {
	var names []string
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return strings.Join(names, ", ")
}

// helpCommand prints the help of a command or a topic. An unknown one is an error.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND|TOPIC]",
		Short:   "print the help of a command or a topic",
		Example: "  attune help run\n  attune help exit-codes\n  attune help variants",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			cmd, rest := findHelp(root, args)
			if len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range cmd.Commands() {
				if !sub.Hidden {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest := findHelp(root, args)
			if len(rest) > 0 {
				return usageError{unknownTopic(cmd, rest[0])}
			}
			cmd.InitDefaultHelpFlag()
			cmd.InitDefaultVersionFlag()
			return cmd.Help()
		},
	}
}

// findHelp finds the command that the words name, and returns the words that name nothing.
func findHelp(root *cobra.Command, words []string) (*cobra.Command, []string) {
	cmd := root
	for i, word := range words {
		next := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
		if next < 0 {
			return cmd, words[i:]
		}
		cmd = cmd.Commands()[next]
	}
	return cmd, nil
}

func unknownTopic(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	if nearest := spec.Nearest(word, names); nearest != "" {
		return fmt.Errorf("no help for %q; did you mean %q?", word, nearest)
	}
	return fmt.Errorf("no help for %q; `%s --help` lists what there is", word, cmd.CommandPath())
}
