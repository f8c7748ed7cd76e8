package doctor

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"attune/internal/arch"
	"attune/internal/child"
	"attune/internal/device"
	"attune/internal/peer"
	"attune/internal/python"
	"attune/internal/regular"
	"attune/internal/toolchain"
)

// Ability is one ability of attune on this machine.
type Ability struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Why  string `json:"why"`
	Do   string `json:"do,omitempty"` // remedy, if not OK
	// Commands are those in Do, in their order. A screen must not break them, or they cannot be copied.
	Commands []string `json:"-"`
}

// Machine has the program's settings that Examine needs.
type Machine struct {
	CacheDir  string // empty if no place for it is known
	LedgerDir string
	// Open opens the GPU as a run would.
	Open func(ctx context.Context) (device.Device, error)
}

// Examine checks every ability.
func Examine(ctx context.Context, m Machine) []Ability {
	compiler, compilerErr := toolchain.Find(ctx, m.CacheDir)
	return []Ability{
		{"run shipped stages' resource gate", true, "the stages and their build records are embedded in the program", "", nil},
		gpu(ctx, m),
		{"check kernels with no GPU", true, "the simulator runs PTX for " + arch.SimulatedText, "", nil},
		compile(ctx, compiler, compilerErr),
		disassemble(compiler),
		install(ctx),
		numpy(ctx, m.CacheDir),
		pytorch(ctx),
		tool("find bad accesses on the GPU", "compute-sanitizer", "install the CUDA toolkit"),
		tool("read the GPU's counters", "ncu", "install Nsight Compute"),
		tool("record which source a run was made from", "git", "install git"),
		keepBuilds(m.CacheDir),
		writable("keep runs", m.LedgerDir, "set --ledger or ATTUNE_LEDGER to a writable folder"),
	}
}

func gpu(ctx context.Context, m Machine) Ability {
	a := Ability{Name: "run and time kernels on a GPU"}
	d, err := m.Open(ctx)
	if err != nil {
		a.Why, a.Do = oneLine(err.Error()), "check that nvidia-smi shows the GPU, and restart its driver if not"
		if errors.Is(err, device.ErrNoDevice) {
			a.Do = "on a machine with an NVIDIA GPU, install its driver (580 or later for the shipped PTX)"
		}
		return a
	}
	defer d.Close()
	f := d.Facts()
	a.OK, a.Why = true, fmt.Sprintf("%s, %s, %d SMs, driver %s", f.Name, f.Arch, f.Multiprocessors, f.Driver)
	if !arch.HasLibrary(f.Arch) {
		a.Why += "; the attention libraries need " + arch.LibraryText
	}
	return a
}

// Commands of remedies.
const (
	installCompiler = "attune toolchain install"
	installTorch    = "python3 -m pip install torch"
	fixCommand      = "attune doctor --fix"
)

// run makes a command the remedy.
func (a *Ability) run(command string) { a.Do, a.Commands = command, []string{command} }

func compile(ctx context.Context, c *toolchain.Compiler, err error) Ability {
	a := Ability{Name: "build variants"}
	if err != nil {
		a.Why = oneLine(err.Error())
		a.run(installCompiler)
		if c != nil {
			a.Do, a.Commands = "install g++", nil // only nvcc's host compiler is missing
		}
		return a
	}
	found := fmt.Sprintf("nvcc %s from %s (%s)", c.Version, c.Origin, c.NVCC)
	damaged, err := c.Damaged(ctx)
	switch {
	case err != nil:
		a.Why = found + " cannot be verified: " + oneLine(err.Error())
		a.run(installCompiler)
	case len(damaged) > 0:
		a.Why = found + " is damaged: " + toolchain.Summary(damaged)
		a.run(installCompiler)
	default:
		a.OK, a.Why = true, found+", for "+arch.CompiledText
	}
	return a
}

func disassemble(c *toolchain.Compiler) Ability {
	a := Ability{Name: "show machine code (--emit sass)"}
	if c == nil {
		a.Why = "there is no compiler"
		a.run(installCompiler)
		return a
	}
	program, err := toolchain.Disassembler(c)
	if err != nil {
		a.Why = oneLine(err.Error())
		a.run(installCompiler)
		return a
	}
	a.OK, a.Why = true, program
	return a
}

func install(ctx context.Context) Ability {
	a := Ability{Name: "install the compiler"}
	if runtime.GOOS != "linux" {
		a.Why, a.Do = "NVIDIA's compiler wheels are for Linux", "build variants on a Linux machine"
		return a
	}
	path, err := exec.LookPath("python3")
	if err != nil {
		a.Why, a.Do = "there is no python3 in PATH", "install Python 3 with pip"
		return a
	}
	out, err := child.Output(ctx, importLimit, path, "-m", "pip", "--version")
	if err != nil {
		a.Why, a.Do = err.Error(), "install pip for "+path
		if limit, late := errors.AsType[*child.LimitError](err); late {
			a.Why = "pip of " + path + " " + limit.Error()
		}
		if failed, ok := errors.AsType[*child.ExitError](err); ok && len(failed.Stderr) > 0 {
			a.Why = oneLine(string(failed.Stderr))
		}
		return a
	}
	version, _, _ := strings.Cut(out, " from ")
	a.OK, a.Why = true, oneLine(version)
	return a
}

// numpy examines the Python that references of declared kernels run in.
func numpy(ctx context.Context, cacheDir string) Ability {
	a := Ability{Name: "compute references in Python"}
	path, err := python.ForReferences("", cacheDir)
	if err != nil {
		a.Why = oneLine(err.Error())
		if reason := (*python.Error)(nil); errors.As(err, &reason) {
			a.Why, a.Do = reason.Why, reason.Do
		}
		return a
	}
	out, err := child.Output(ctx, importLimit, path, "-c", "import numpy; print(numpy.__version__)")
	if limit, late := errors.AsType[*child.LimitError](err); late {
		a.Why, a.Do = path+" "+limit.Error(), python.UseAnother
		return a
	}
	if err != nil {
		a.Why, a.Do = path+" has no numpy that works", python.UseAnother
		if fix, err := FixNumpy(cacheDir); err == nil {
			a.Do = fmt.Sprintf("%s, which runs %s; or %s", fixCommand, fix, python.UseAnother)
			a.Commands = []string{fixCommand, fix.String()}
		}
		return a
	}
	a.OK, a.Why = true, fmt.Sprintf("numpy %s of %s", oneLine(out), path)
	return a
}

// importLimit is the time limit for the import of PyTorch, which reads gigabytes from a cold disk.
const importLimit = time.Minute

func pytorch(ctx context.Context) Ability {
	a := Ability{Name: "time PyTorch beside ours"}
	helper, err := peer.Start(ctx, peer.Options{Limit: importLimit})
	if err != nil {
		a.Why, a.Do, a.Commands = oneLine(err.Error()), installTorch+", on a machine with an NVIDIA GPU", []string{installTorch}
		if reason := (*peer.Error)(nil); errors.As(err, &reason) && reason.Do != "" {
			a.Why, a.Do, a.Commands = reason.Why, reason.Do, nil
		}
		return a
	}
	defer helper.Close()
	f := helper.Facts()
	a.OK, a.Why = true, fmt.Sprintf("PyTorch %s, CUDA %s, cuDNN %s, on %s", f.Torch, f.CUDA, orNone(f.CuDNN), f.GPU)
	return a
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// oneLine makes foreign text a single line, for the table.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func tool(name, program, do string) Ability {
	place, err := exec.LookPath(program)
	if err != nil {
		return Ability{name, false, "there is no " + program + " in PATH", do, nil}
	}
	return Ability{name, true, place, "", nil}
}

func keepBuilds(dir string) Ability {
	const name, do = "keep builds", "set ATTUNE_CACHE to a writable folder"
	if dir == "" {
		return Ability{name, false, toolchain.ErrNoCacheDir.Error() + ": neither HOME nor XDG_CACHE_HOME is set", do, nil}
	}
	return writable(name, dir, do)
}

func writable(name, dir, do string) Ability {
	if err := regular.Writable(dir); err != nil {
		return Ability{name, false, err.Error(), do, nil}
	}
	return Ability{name, true, dir, "", nil}
}
