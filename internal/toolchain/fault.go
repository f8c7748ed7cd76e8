package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"attune/internal/child"
)

// FaultError is the error of a compiler that does not work: it is damaged, it crashed, it was
// killed, or it wrote no output. It is no statement about the source.
type FaultError struct {
	Task    string // such as "build stage2 for sm_89"
	Symptom string
	Remedy  string
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("%s: the CUDA compiler does not work: %s; %s", e.Task, e.Symptom, e.Remedy)
}

// check returns a FaultError if files of the compiler are damaged.
func (c *Compiler) check(ctx context.Context, t Target) error {
	files, err := c.damaged(ctx, false)
	if err != nil || len(files) == 0 {
		return err
	}
	return damageFault("build "+t.String(), files)
}

// diagnose decides whether a failed compiler rejects the target (CompileError) or does not work
// (FaultError). Damaged files make it a fault whatever the compiler printed: a damaged header gives
// errors with lines of the source.
func (c *Compiler) diagnose(ctx context.Context, t Target, program string, failure error, output string) error {
	if err := t.flagError(output); err != nil {
		return err
	}
	if symptom := symptomOf(program, failure, output); symptom != "" {
		return c.broken(ctx, t, symptom)
	}
	files, err := c.damaged(ctx, true)
	switch {
	case err != nil:
		return err
	case len(files) > 0:
		return damageFault("build "+t.String(), files)
	}
	return &CompileError{Target: t, Output: output}
}

// broken is the error of a compiler with a symptom. Damaged files are named in place of the symptom.
func (c *Compiler) broken(ctx context.Context, t Target, symptom string) error {
	files, err := c.damaged(ctx, true)
	switch {
	case err != nil:
		return err
	case len(files) > 0:
		return damageFault("build "+t.String(), files)
	}
	remedy := fmt.Sprintf("repair the toolkit of %s, or set CUDA_HOME to another", c.Origin)
	switch {
	case strings.Contains(symptom, outOfMemory):
		remedy = "free memory and run it again"
	case c.folder() != "":
		remedy = "its files are intact: free memory and disk space and run it again, or set CUDA_HOME to another toolkit"
	}
	return &FaultError{"build " + t.String(), symptom, remedy}
}

func damageFault(task string, files []Damage) *FaultError {
	return &FaultError{task, Summary(files), "run `attune toolchain install` to repair it"}
}

// Summary describes damaged files in one line.
func Summary(files []Damage) string {
	const most = 3
	var parts []string
	for _, d := range files[:min(most, len(files))] {
		parts = append(parts, d.String())
	}
	text := strings.Join(parts, ", ")
	if len(files) > most {
		text += fmt.Sprintf(", and %d more files are damaged", len(files)-most)
	}
	return text
}

// outOfMemory is the usual cause of SIGKILL.
const outOfMemory = "probably the machine ran out of memory"

// symptomOf describes a failure of the compiler itself. It is empty if the compiler has diagnosed
// the source.
func symptomOf(program string, failure error, output string) string {
	name := filepath.Base(program)
	exit, ok := errors.AsType[*child.ExitError](failure)
	if !ok {
		return fmt.Sprintf("%s does not run: %v", name, failure)
	}
	if s := signalOf(exit); s == syscall.SIGKILL {
		return fmt.Sprintf("%s was killed; %s", name, outOfMemory)
	} else if s != 0 {
		return fmt.Sprintf("%s crashed: %v", name, s)
	}
	rejected, first := false, ""
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		if compilerBug.MatchString(line) || faultLine.MatchString(line) && !locatedLine.MatchString(line) {
			return fmt.Sprintf("%s: %s", name, line)
		}
		rejected = rejected || diagnosis.MatchString(line)
		first = cmp.Or(first, strings.TrimSpace(line))
	}
	switch {
	case rejected:
		return ""
	case first != "":
		return fmt.Sprintf("%s ended with %v: %s", name, exit, first)
	}
	return fmt.Sprintf("%s ended with %v and printed nothing", name, exit)
}

// signalOf is the signal that ended the compiler, or one of its programs: nvcc and the shell then
// end with 128 and the signal's number.
func signalOf(exit *child.ExitError) syscall.Signal {
	switch code := exit.Status.ExitStatus(); {
	case exit.Status.Signaled():
		return exit.Status.Signal()
	case code > 128 && code <= 128+int(syscall.SIGSYS):
		return syscall.Signal(code - 128)
	}
	return 0
}

// place is the beginning of a line with a place in a source, as NVIDIA's front end, the host compiler
// and ptxas write it.
const place = `(?:[^\s(][^(]*\(\d+\): |[^\s:][^:]*:\d+(?::\d+)?: |ptxas \S+, line \d+; )`

var (
	locatedLine = regexp.MustCompile(`^` + place)

	// diagnosis is a line that rejects the source or the target. ptxas rejects a kernel as a whole
	// without a line, for example for its shared memory.
	diagnosis = regexp.MustCompile(`^(?:` + place + `(?:catastrophic |fatal )?(?:[Ee]rror|fatal)\b` +
		`|ptxas (?:error|fatal) *: |nvcc fatal *: Unsupported gpu architecture )`)

	// faultLine is a line that a broken compiler, its shell or its loader prints. A located line may
	// quote such a text.
	faultLine = regexp.MustCompile(`(?i)^(?:\S.*\b(?:died (?:with|due)|memory allocation failure|out of memory|memory exhausted` +
		`|exec format error|cannot execute|permission denied|error while loading shared libraries|no space left on device` +
		`|could not be opened|could not open|killed signal|core dumped|stack dump|not found$)` +
		`|(?:segmentation fault|killed|bus error|illegal instruction|aborted)\b|llvm error\b)`)

	// compilerBug is an error of the compiler's own, with or without a place in the source.
	compilerBug = regexp.MustCompile(`(?i)^` + place + `?(?:\S+ *(?:error|fatal) *: )?internal (?:compiler )?error\b`)
)
