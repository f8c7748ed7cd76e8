package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/arch"
	"attune/internal/child"
	"attune/internal/ci"
	"attune/internal/crash"
	"attune/internal/document"
	"attune/internal/exec"
	"attune/internal/finding"
	"attune/internal/regular"
	"attune/internal/sim/mem"
	"attune/internal/terminal"
	"attune/internal/toolchain"
)

// execOptions are the flags of `attune exec`.
type execOptions struct {
	sim        simOptions
	arch       string
	build      string
	serve      bool
	compiler   []string
	only, skip []string
	sample     int
	repeats    bool
	suppress   string
	document   resultFile
	files      resultFiles
}

// runsProgram reports whether a command line is that of a command whose arguments are another program's.
func runsProgram(args []string) bool {
	return len(args) > 0 && (args[0] == "exec" || args[0] == "nvcc")
}

func (a *app) execCommand() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] PROGRAM [ARG...] | exec --build FILE.cu [flags] [ARG...]",
		Short: "run a CUDA program with its host code on the simulator",
		Long: `Exec runs a CUDA program, with its host code, on the simulator with all
checkers. The program needs no GPU and no change: it loads attune's
libcuda.so.1 in the place of the driver's. It must have PTX, as nvcc writes with
-gencode arch=compute_90,code=compute_90 or "attune nvcc"; -lineinfo gives
findings their source lines. --build compiles a source with both and runs it.

Findings go to standard error. The exit code is 11 if there are any, else that
of the program, and 14 if the simulator refused a kernel of a program that
succeeded. Flags of attune come before the program.

A line of the file of --suppress is KERNEL FILE:LINE KIND REASON, where * stands
for any characters: mm_ids_helper mmid.cu:88 race warps write equal values`,
		Example: "  attune exec --build saxpy.cu 1000\n  attune exec ./tests --gtest_filter=Sort.*\n  attune exec --skip 'reference_*' --sample 2 ./train",
		Args:    func(_ *cobra.Command, args []string) error { return o.checkArgs(args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return usageError{err}
			}
			defer a.endFiles(&o.files, true)
			defer o.document.discard()
			if err := errors.Join(o.files.create(o.document), o.document.create()); err != nil {
				return err
			}
			return a.exec(cmd.Context(), &o, args)
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.arch, "arch", defaultArch, "architecture of the simulated device")
	f.StringVar(&o.build, "build", "", "compile this `file` with nvcc, and run it")
	f.BoolVar(&o.serve, "serve", false, "serve programs that are started elsewhere, until standard input ends")
	f.StringArrayVar(&o.compiler, "flag", nil, "with --build: a flag of nvcc; repeat for more")
	f.StringArrayVar(&o.only, "only", nil, "check this `kernel` alone, run others unchecked; * is any text")
	f.StringArrayVar(&o.skip, "skip", nil, "run this `kernel` without checkers")
	f.IntVar(&o.sample, "sample", 0, "check the first `N` launches of each kernel (default all)")
	f.BoolVar(&o.repeats, "skip-repeats", false, "do not run a launch again that would change nothing")
	f.StringVar(&o.suppress, "suppress", "", "`file` of findings that are accepted, with reasons")
	o.document.flag = "json"
	f.StringVar(&o.document.path, "json", "", "write the outcome as JSON to this `file`")
	f.StringVar(&o.sim.checks, "checks", "on", "checkers on, or off for speed")
	f.StringVar(&o.sim.tensor, "tensor", defaultSim.tensor, "tensor cores: exact, f32 or f64")
	f.IntVar(&o.sim.memory, strings.TrimPrefix(mem.LimitFlag, "--"), 0, "most MiB it holds (default half of the machine's)")
	f.BoolVar(&o.sim.strict, "strict", false, "fail on strict findings too")
	f.BoolVarP(&o.sim.verbose, "verbose", "v", false, "print findings with instructions, calls and all details")
	o.files.junitFlag(f)
	o.files.sarifFlag(f)
	return cmd
}

func (o *execOptions) checkArgs(args []string) error {
	if o.serve {
		if o.build != "" || len(args) > 0 {
			return errors.New("exec --serve takes no program")
		}
		return nil
	}
	if o.build == "" && len(args) == 0 {
		return errors.New("exec takes a program, such as `attune exec ./saxpy`, or --build FILE.cu")
	}
	return nil
}

// check checks the flags and fills in what they leave open.
func (o *execOptions) check() error {
	if number, _ := arch.Number(o.arch); number < arch.FirstSimulated {
		return fmt.Errorf("--arch %s: the simulator has %s", o.arch, arch.SimulatedText)
	}
	if o.sample < 0 {
		return fmt.Errorf("--sample %d: want at least 0", o.sample)
	}
	if o.sim.memory == 0 {
		o.sim.memory = max(int(child.MachineMemory()>>20)/2, defaultSim.memory)
	}
	o.sim.schedules = "1"
	return o.sim.check()
}

func (a *app) exec(ctx context.Context, o *execOptions, command []string) error {
	o.sim.limitHeap()
	options, err := a.execServer(ctx, o)
	if err != nil {
		return err
	}
	if o.build != "" {
		program, remove, err := a.buildProgram(ctx, o, options.Library)
		if err != nil {
			return err
		}
		defer remove()
		command = append([]string{program}, command...)
	}
	began := time.Now()
	name, run := "serve", a.serveExec
	if !o.serve {
		name, run = filepath.Base(command[0]), func(ctx context.Context, options exec.Options) (*exec.Outcome, error) {
			return exec.Run(ctx, options, command)
		}
	}
	outcome, err := run(ctx, *options)
	a.status().Clear()
	if err != nil && (ctx.Err() == nil || outcome == nil) {
		return err
	}
	a.printExec(o, outcome, time.Since(began))
	if err := a.reportExec(o, outcome, name, time.Since(began)); err != nil {
		return err
	}
	if err != nil {
		return interruptedWith(ctx, err, "what was found before is above")
	}
	switch {
	case outcome.Failed(o.sim.strict) > 0:
		return gateError{exitCorrectness}
	case outcome.Exit != 0:
		return gateError{outcome.Exit}
	case len(outcome.Refused)+len(outcome.Unsupported) > 0:
		return gateError{exitUnchecked}
	}
	return nil
}

// execServer returns the options of the server, with the client library built.
func (a *app) execServer(ctx context.Context, o *execOptions) (*exec.Options, error) {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		return nil, err
	}
	library, err := exec.Library(ctx, cacheDir)
	if errors.Is(err, exec.ErrNoHostCompiler) {
		return nil, fmt.Errorf("%w: %w", toolchain.ErrNoCompiler, err)
	}
	if err != nil {
		return nil, err
	}
	folder, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	options := &exec.Options{
		Arch: o.arch, Library: library, Folder: folder, Memory: o.sim.memory << 20,
		Checks: o.sim.checks == "on", Tensor: tensorModes[o.sim.tensor], Only: o.only, Skip: o.skip, Sample: o.sample, SkipRepeats: o.repeats,
		Report:   func(f *exec.Found) { a.printFound(o, f) },
		Line:     func(text string) { a.note(child.OneLine(text, 2000)) },
		Progress: a.execProgress(),
		Describe: func(f *exec.Found) string { return describeFound(o, f) },
		Crash:    func(p *crash.Panic) { a.note(p.Error() + "; " + reportCrash(p, os.Args[1:])) },
	}
	if compiler, err := toolchain.Find(ctx, cacheDir); err == nil {
		options.Compiler = compiler.NVCC
	}
	if o.suppress == "" {
		return options, nil
	}
	text, err := regular.Read(o.suppress, 1<<20)
	if err == nil {
		options.Suppress, err = exec.ReadSuppressions(text)
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("--suppress %s: %w", o.suppress, err)}
	}
	return options, nil
}

// execProgress shows launches that take long on the status line.
func (a *app) execProgress() func(exec.Progress) {
	status := a.status()
	var busy float64
	var instructions uint64
	return func(p exec.Progress) {
		if p.Running {
			rate := ""
			if busy > 0 {
				rate = fmt.Sprintf(", %.2f million warp instructions a second", float64(instructions)/busy/1e6)
			}
			status.Set("%s, launch %d%s", p.Kernel, p.Launch, rate)
			return
		}
		busy, instructions = busy+p.Seconds, p.WarpInstructions
		status.Clear()
	}
}

// printFound writes a finding when it appears. A server's programs ask for theirs.
func (a *app) printFound(o *execOptions, f *exec.Found) {
	if o.serve {
		return
	}
	a.status().Clear()
	f.Write(a.stderr, foundForm(o, f, terminal.ScreenOf(os.Stderr, a.colour)))
}

func foundForm(o *execOptions, f *exec.Found, screen terminal.Screen) finding.Form {
	form := finding.Form{Screen: screen, Sources: readSource, Verbose: o.sim.verbose, On: "kernel " + f.Kernel}
	if f.FirstIn > 1 {
		form.On += fmt.Sprintf(", launch %d", f.FirstIn)
	}
	return form
}

// describeFound is the text of a finding without colours.
func describeFound(o *execOptions, f *exec.Found) string {
	var text strings.Builder
	f.Write(&text, foundForm(o, f, terminal.Screen{Width: 92}))
	return text.String()
}

// serveExec serves programs until standard input ends. It prints what they need in their environment,
// as a line of JSON.
func (a *app) serveExec(ctx context.Context, options exec.Options) (*exec.Outcome, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // a read that fails is an end too
		stop()
	}()
	return exec.Serve(ctx, options, func(environment map[string]string) error {
		return json.NewEncoder(a.stdout).Encode(environment)
	})
}

// readSource reads a source file that the PTX of a program names.
func readSource(file string) []byte {
	text, _ := regular.Read(file, longestSource) // without the source a finding has its place
	return text
}

// printExec writes the summary.
func (a *app) printExec(o *execOptions, r *exec.Outcome, elapsed time.Duration) {
	if r.Signal != "" {
		a.note("the program was ended by a signal: " + r.Signal)
	}
	text := fmt.Sprintf("%d launches of %d kernels, %s", r.Launches, len(r.Kernels), plural(r.Failed(o.sim.strict), "finding"))
	if n := len(r.Findings) - r.Failed(o.sim.strict); n > 0 {
		text += fmt.Sprintf(", %d strict", n)
	}
	if n := len(r.Suppressed); n > 0 {
		text += fmt.Sprintf(", %d suppressed", n)
	}
	unchecked, skipped := 0, 0
	for _, k := range r.Kernels {
		unchecked += k.Launches - k.Checked - k.Skipped
		skipped += k.Skipped
	}
	if skipped > 0 {
		text += fmt.Sprintf(", %s skipped", plural(skipped, "repeat"))
	}
	if unchecked > 0 {
		text += fmt.Sprintf(", %d launches without checkers", unchecked)
	}
	if n := len(r.Refused); n > 0 {
		text += fmt.Sprintf(", %s refused", plural(n, "kernel"))
	}
	if n := r.HostedCalls(); n > 0 {
		text += fmt.Sprintf(", %s of cuBLAS computed on the host, unchecked", plural(n, "call"))
	}
	var kinds []finding.Kind
	for _, f := range r.Findings {
		kinds = append(kinds, f.Kind)
	}
	if len(kinds) > 0 {
		a.note("explained in " + document.FindingPages(kinds))
	}
	a.note(fmt.Sprintf("%s; %d warp instructions in %.1f s", text, r.WarpInstructions, elapsed.Seconds()))
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// buildProgram compiles a source to a program in a folder of its own.
func (a *app) buildProgram(ctx context.Context, o *execOptions, library string) (program string, remove func(), err error) {
	if _, err := os.Stat(o.build); err != nil {
		return "", nil, usageError{err}
	}
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		return "", nil, err
	}
	compiler, err := toolchain.Find(ctx, cacheDir)
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "attune-program-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	name := strings.TrimSuffix(filepath.Base(o.build), filepath.Ext(o.build))
	program = filepath.Join(dir, name)
	args := append(exec.CompileFlags(compiler, library, o.arch), "-o", program, o.build)
	cmd := osexec.CommandContext(ctx, compiler.NVCC, append(args, o.compiler...)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	a.status().Set("%s: compiling", o.build)
	err = cmd.Run()
	a.status().Clear()
	if err != nil {
		remove()
		return "", nil, gateError{exitResources} // nvcc has said why
	}
	return program, remove, nil
}

// ---- reports ---------------------------------------------------------------------------------------

// execDocument is the JSON document of `attune exec`.
type execDocument struct {
	SchemaVersion int    `json:"schema_version"`
	Program       string `json:"program"`
	Arch          string `json:"arch"`
	*exec.Outcome
	Seconds float64 `json:"seconds"`
}

// reportExec writes the files of a run and tells GitHub Actions about it.
func (a *app) reportExec(o *execOptions, r *exec.Outcome, program string, elapsed time.Duration) error {
	if r.Findings == nil {
		r.Findings = []*exec.Found{}
	}
	for _, f := range r.Findings {
		f.Quote(readSource)
	}
	tree := ci.FindTree()
	locate := func(file string) string {
		if !filepath.IsAbs(file) {
			file, _ = filepath.Abs(file)
		}
		return tree.Locate(file)
	}
	var issues []ci.Issue
	for _, f := range r.Findings {
		issues = append(issues, document.FindingIssue(f.Kernel, f.Finding, locate, "", ""))
	}
	a.step.Add(issues...)
	d := execDocument{SchemaVersion: 1, Program: program, Arch: o.arch, Outcome: r, Seconds: elapsed.Seconds()}
	return errors.Join(
		o.document.write(func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(d)
		}),
		o.files.junit.write(func(w io.Writer) error { return ci.JUnit(w, execSuite(r, program, elapsed, o.sim.strict)) }),
		o.files.sarif.write(func(w io.Writer) error { return ci.SARIF(w, version(), tree, document.FindingRules(), issues) }),
	)
}

// execSuite is a run as a test suite: a case for each kernel, and one for the program's own exit code.
func execSuite(r *exec.Outcome, program string, elapsed time.Duration, strict bool) ci.Suite {
	suite := ci.Suite{Name: "attune exec", Elapsed: elapsed}
	for _, k := range r.Kernels {
		c := ci.Case{Class: program, Name: k.Name, Elapsed: time.Duration(k.Seconds * float64(time.Second))}
		for _, refused := range r.Refused {
			if refused.Kernel == k.Name {
				c.Outcome, c.Message = ci.Broken, refused.Why
			}
		}
		var text bytes.Buffer
		for _, f := range r.Findings {
			if f.Kernel == k.Name && f.Fails(strict) {
				c.Outcome, c.Message = ci.Failed, f.String()
				fmt.Fprintln(&text, f.String())
			}
		}
		c.Text = text.String()
		suite.Cases = append(suite.Cases, c)
	}
	end := ci.Case{Class: program, Name: "exit code"}
	if r.Exit != 0 {
		end.Outcome, end.Message = ci.Failed, strings.TrimSpace(fmt.Sprintf("exit code %d %s", r.Exit, r.Signal))
	}
	suite.Cases = append(suite.Cases, end)
	return suite
}
