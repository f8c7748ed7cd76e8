package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"attune/internal/ci"
	"attune/internal/document"
	"attune/internal/regular"
	"attune/internal/run"
)

// ciText is the help page about continuous integration.
const ciText = `In a step of GitHub Actions (GITHUB_ACTIONS=true), run, sim, bench, compare,
mutate and tune report there too:

  - what failed becomes an annotation: findings on their source lines, failed
    gates, wrong outputs, errors; surviving mutants as warnings. Annotations
    are workflow commands on standard error, so --json prints one document
  - tables and reasons are appended to the summary of the step, in the file
    GITHUB_STEP_SUMMARY, up to GitHub's limit of 1 MiB

Files for other tools, of commands that have the flag:

  --junit FILE      run, sim, exec, mutate: JUnit XML. A case is a gate of a
                    variant, a case of sim, a kernel of exec, or a kind of
                    mutant. A gate that was not measured is skipped; outputs
                    that could not be checked are an error. A kind with
                    survivors has failed
  --sarif FILE      run, sim, exec: findings of the simulator's checkers and of
                    the audit as SARIF 2.1.0, a rule for each kind; outputs that
                    could not be checked. Strict findings, which fail
                    nothing, have the level note
  --benchstat FILE  run, bench, compare: every sample as text of Go's
                    benchmarks; benchstat -col /variant FILE compares them

Paths are relative to the checkout: GITHUB_WORKSPACE, else the nearest folder
with a .git. Files are created before the work begins, and are also written if a
gate fails; without any result they are removed. docs/ci.md has a workflow and an example of each format.`

// resultFile is a file that a command writes at its end, for a program. It is created before the
// work, so that a wrong path costs none of it.
type resultFile struct {
	flag, path string
	created    *createdFile // nil if the flag is not given; copies of the options share it
}

type createdFile struct {
	*os.File
	begun bool // it has contents
	named bool // the command says that it wrote it
}

// add adds the flag of the file, which the help page about continuous integration describes.
func (r *resultFile) add(f *pflag.FlagSet, flag, usage string) {
	r.flag = flag
	f.StringVar(&r.path, flag, "", usage)
	describeIn(f, "ci", flag)
}

// create creates the file if its flag is given.
func (r *resultFile) create() error {
	if r.path == "" {
		return nil
	}
	file, err := regular.Create(r.path)
	if err != nil {
		return usageError{fmt.Errorf("--%s: %w", r.flag, err)}
	}
	r.created = &createdFile{File: file}
	return nil
}

// write writes and closes the file, if it was created.
func (r *resultFile) write(content func(io.Writer) error) error {
	if r.created == nil {
		return nil
	}
	r.created.begun = true
	info, err := r.created.Stat()
	if err := errors.Join(err, content(r.created), r.created.Close()); err != nil {
		return fmt.Errorf("--%s: write %s: %w", r.flag, r.path, err)
	}
	r.created.named = info.Mode().IsRegular() // the reader of /dev/stdout wants the document alone
	return nil
}

// discard removes the file of a command that ended before there was a result: an empty file is an
// error to the programs that read it. A device or a link stays.
func (r *resultFile) discard() {
	if r.created == nil || r.created.begun {
		return
	}
	r.created.Close()
	if info, err := os.Lstat(r.path); err == nil && info.Mode().IsRegular() {
		os.Remove(r.path)
	}
}

// resultFiles are the files that a command can write.
type resultFiles struct{ junit, sarif, benchstat resultFile }

// The flags of the files.
func (r *resultFiles) junitFlag(f *pflag.FlagSet) {
	r.junit.add(f, "junit", "write the outcome as JUnit XML to this `file`")
}

func (r *resultFiles) sarifFlag(f *pflag.FlagSet) {
	r.sarif.add(f, "sarif", "write the findings as SARIF to this `file`")
}

func (r *resultFiles) benchstatFlag(f *pflag.FlagSet) {
	r.benchstat.add(f, "benchstat", "write the samples for benchstat to this `file`")
}

// create creates the files. The caller ends them. The others are files that the command writes
// besides; no two may be the same.
func (r *resultFiles) create(others ...resultFile) error {
	if err := checkApart(append(others, r.junit, r.sarif, r.benchstat)); err != nil {
		return usageError{err}
	}
	return errors.Join(r.junit.create(), r.sarif.create(), r.benchstat.create())
}

// checkApart refuses two flags that name the same file: the second document would overwrite the
// first. Devices such as /dev/null may be shared.
func checkApart(files []resultFile) error {
	for i, r := range files {
		if info, err := os.Stat(r.path); err == nil && !info.Mode().IsRegular() {
			continue
		}
		for _, other := range files[:i] {
			if sameFile(r.path, other.path) {
				return fmt.Errorf("--%s and --%s name the same file, %s; name two", other.flag, r.flag, r.path)
			}
		}
	}
	return nil
}

// endFiles names the files that were written, and removes those that were not. It is quiet where
// standard output is for a program.
func (a *app) endFiles(files *resultFiles, quiet bool) {
	for _, r := range []*resultFile{&files.junit, &files.sarif, &files.benchstat} {
		r.discard()
		if r.created != nil && r.created.named && !quiet {
			a.wrote(r.path)
		}
	}
}

// wrote names a file that a command wrote besides its output, unless that is JSON.
func (a *app) wrote(path string) {
	if !a.json {
		fmt.Fprintf(a.stdout, "wrote %s\n", filepath.ToSlash(path))
	}
}

// locateIn finds files that are named relative to a folder. Without a folder there are none: the
// kernel is the one in the program.
func locateIn(tree ci.Tree, folder string) document.Locate {
	return func(file string) string {
		switch {
		case folder == "" || file == "":
			return ""
		case filepath.IsAbs(file):
			return tree.Locate(file)
		}
		return tree.Locate(filepath.Join(folder, filepath.FromSlash(file)))
	}
}

// reportStep tells GitHub Actions what the command has collected, and the error that ended it.
// Commands with gates have collected the ones that failed.
func (a *app) reportStep(err error, code int, command string) {
	if a.step == nil {
		return
	}
	failed := gateError{}
	collected := errors.As(err, &failed) && a.step.HasIssues()
	if code != exitOK && code != exitInterrupted && err != nil && !collected {
		a.step.Add(ci.Issue{Level: ci.Error, Rule: command, Message: a.withKernel(withRemedy(err))})
	}
	if err := a.step.Report(a.stderr); err != nil {
		a.note(err.Error())
	}
}

// report writes the files of the runs and tells GitHub Actions about them. The run of a selection
// includes its parts.
func (p *runPrinter) report(files *resultFiles) error {
	runs := withoutParts(p.runs)
	tree := ci.FindTree()
	locate := locateIn(tree, p.kernelPath())
	var findings []ci.Issue
	for _, r := range runs {
		p.step.Add(document.RunIssues(r, locate)...)
		findings = append(findings, document.RunFindings(r, locate)...)
	}
	p.step.Summarize(document.RunsStep(runs))
	if files.benchstat.created != nil && !slices.ContainsFunc(runs, func(r *run.Run) bool { return len(r.Samples) > 0 }) {
		p.note(fmt.Sprintf("--benchstat %s has no samples: no time was measured", files.benchstat.path))
	}
	return errors.Join(
		files.junit.write(func(w io.Writer) error { return document.JUnit(w, runs, time.Since(p.started)) }),
		files.sarif.write(func(w io.Writer) error { return ci.SARIF(w, version(), tree, document.FindingRules(), findings) }),
		files.benchstat.write(func(w io.Writer) error { return document.RunBenchmarks(w, runs) }),
	)
}

var ptxLine = regexp.MustCompile(`PTX line (\d+)`)

// issues are what is wrong with a case: findings that it does not expect, outputs, or that it did
// not run.
func (s *simulation) issues(tree ci.Tree) []ci.Issue {
	all := s.findings(tree)
	if s.Pass {
		return nil
	}
	if s.err != nil {
		i := ci.Issue{Level: ci.Error, Rule: "not run", Subject: s.Name, Message: s.Error, Location: ci.Location{File: tree.Path(s.file)}}
		if m := ptxLine.FindStringSubmatch(s.Error); m != nil && tree.Path(s.ptx) != "" {
			i.Location.File = tree.Path(s.ptx)
			i.Location.Line, _ = strconv.Atoi(m[1]) // the pattern has digits only
		}
		return append(all, i)
	}
	for _, text := range s.Mismatches {
		all = append(all, ci.Issue{Level: ci.Error, Rule: "mismatch", Subject: s.Name, Message: text, Location: ci.Location{File: tree.Path(s.file)}})
	}
	if len(all) == 0 {
		text := "the expected finding was not reported: " + kindText(s.Expected, " or ")
		all = append(all, ci.Issue{Level: ci.Error, Rule: "missing finding", Subject: s.Name, Message: text, Location: ci.Location{File: tree.Path(s.file)}})
	}
	return all
}

// findings are those that are reported as SARIF: all of a case that fails, and strict ones that a
// case does not expect.
func (s *simulation) findings(tree ci.Tree) []ci.Issue {
	if s.Pass && !s.onlyNotes() {
		return nil
	}
	var all []ci.Issue
	for _, f := range s.Findings {
		all = append(all, document.FindingIssue(s.Name, f, locateIn(tree, filepath.Dir(s.file)), tree.Locate(s.ptx), tree.Locate(s.file)))
	}
	return all
}

// suite is the outcome of all cases as a test suite.
func (d *simulated) suite() ci.Suite {
	suite := ci.Suite{Name: "attune sim"}
	for _, s := range d.Cases {
		c := ci.Case{Class: filepath.ToSlash(s.file), Name: s.Name, Elapsed: s.elapsed}
		suite.Elapsed += s.elapsed
		switch {
		case s.err != nil:
			c.Outcome, c.Message = ci.Broken, s.Error
		case !s.Pass:
			c.Outcome, c.Message = ci.Failed, "it does not pass"
			for _, i := range s.issues(ci.Tree{}) {
				if c.Text += i.Message + "\n"; c.Text == i.Message+"\n" {
					c.Message = i.Message
				}
			}
		}
		suite.Cases = append(suite.Cases, c)
	}
	return suite
}

// step summarises the cases for GitHub: the numbers, and a row for each problem.
func (d *simulated) step(issues []ci.Issue) string {
	text := "### attune sim: " + ci.Markdown(d.summary()) + "\n"
	var rows [][]string
	for _, i := range issues {
		place := i.Location.File
		if i.Location.Line > 0 {
			place = fmt.Sprintf("%s:%d", place, i.Location.Line)
		}
		rows = append(rows, []string{ci.Code(i.Subject), ci.Markdown(i.Rule), ci.Markdown(place), ci.Markdown(i.Message)})
	}
	if len(rows) == 0 {
		return text
	}
	return text + "\n" + ci.Table([]string{"case", "problem", "place", "what"}, rows)
}

// report writes the files of a simulation and tells GitHub Actions about it.
func (d *simulated) report(a *app, files *resultFiles) error {
	tree := ci.FindTree()
	var issues, findings []ci.Issue
	for _, s := range d.Cases {
		issues = append(issues, s.issues(tree)...)
		findings = append(findings, s.findings(tree)...)
	}
	a.step.Add(issues...)
	a.step.Summarize(d.step(issues))
	return errors.Join(
		files.junit.write(func(w io.Writer) error { return ci.JUnit(w, d.suite()) }),
		files.sarif.write(func(w io.Writer) error { return ci.SARIF(w, version(), tree, document.FindingRules(), findings) }),
	)
}
