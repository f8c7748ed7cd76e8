package main

import (
	"github.com/spf13/cobra"

	"attune/internal/arch"
)

// isTopic reports whether a command is a page of help and nothing else.
func isTopic(cmd *cobra.Command) bool { return cmd.Annotations["topic"] != "" }

// topics are the pages of `attune help` that belong to no command.
func topics() []*cobra.Command {
	page := func(name, short, text string) *cobra.Command {
		return &cobra.Command{Use: name, Short: short, Long: text, Annotations: map[string]string{"topic": name}}
	}
	return []*cobra.Command{
		page("exit-codes", "the exit codes of all commands", exitCodesText),
		page("kernels", "how to bring a kernel of your own", kernelsText),
		page("architectures", "which GPUs code is compiled, checked and shipped for", architecturesText),
		page("variants", "how to write a variant, a stage and a selection", variantsText),
		page("shapes", "how to write shapes and groups of shapes", shapesText),
		page("random", "benches on random problems", randomText),
		page("proposers", "programs that take part in a search", proposersText),
		page("cases", "launches as data, with their expected results", casesText),
		page("ci", "reports for GitHub Actions, JUnit, SARIF and benchstat", ciText),
	}
}

const randomText = `A bench on random problems shows how far speed holds beside the shapes that a
kernel was tuned for:

  attune bench stage7 --random 80 --seed 1
  attune bench stage7 --random 80 --seed 1 --peer fa3-fp8 --json
  attune bench decode --kernel kernels/attention/decode --random 40 --seed 2
  attune bench stage7 --random 80 --seed 1 --dry-run

The problems are drawn from the ranges of [random] in kernel.toml, the same for
a seed on every machine; the first 40 of 80 are those of --random 40. Without
VARIANT the selections of the kernel are timed, else its stages. A draw that one
of them does not take is left out. --dry-run prints the problems and needs no
GPU.

Each problem is checked and timed as a named shape is, with 12 samples in one
process unless --rounds and --processes say otherwise. Its ratio is the time of
the fastest peer over ours, or that of a copy of its bytes. The report has

  share          of problems with the required ratio, 1.0 by default
  mean           geometric, of all ratios; and their median
  lowest tenth   the geometric mean of the lowest tenth of the ratios
  worst          the ten problems of the lowest ratios, with times and peers

A problem with a wrong output lowers the share and is in no mean. A problem
without a peer is in neither, and is counted. Ctrl-C ends the bench; the finished
problems are its record. docs/kernel-toml.md#random-problems has the ranges.`

const exitCodesText = `Exit codes of all commands:

    0  all held
    1  failure (disk, network); refused promotion; damaged ledger; sim case that
       cannot be read
    2  usage: an unknown name or flag, an error in kernel.toml, parameters not
       as launched
    3  finished, some of several variants failed; a run that is not reproduced;
       a dead knob
   10  the resource gate failed: it does not compile, breaks a rule, or is over
       its budget
   11  the correctness gate failed
   12  the performance gate failed
   13  the profile gate failed
   14  the outputs could not be checked: no reference, or the simulator cannot
       run the kernel
   20  no GPU, and the command needs one
   21  no compiler, or one that is damaged, crashed or was killed: never a
       verdict
   22  timeout: the kernel hangs or needs a longer --timeout; its verdict is
       not-measured
  130  interrupted; finished runs and shapes are recorded

A time that could not be measured fails nothing. A run of several variants ends
with 3 if one of them failed, and with the code of the gate if it was the only
one. With --json the code is also in the error document on standard error. After
an internal error the message names a report in the folder of temporary files.`

var architecturesText = `An architecture, such as sm_90a, is what code is compiled for. There are

  compiled    ` + arch.CompiledText + `, those of CUDA 13.0
  simulated   ` + arch.SimulatedText + `
  libraries   ` + arch.LibraryText + `: attention for C, Go and Python

kernel.toml lists those of a kernel (archs), and --arch chooses one. Code for an
architecture runs on later GPUs too; with an "a" it runs on that one alone. A
kernel that the simulator cannot run is not-measured, with the reason, and the
exit code is 14: check it on a GPU.`

const proposersText = `A proposer is a program that takes part in a search of attune tune:

  --proposer CMD              its command, split into words; no shell runs it
  --proposer-timeout 60s      limit of one answer
  ATTUNE_PROPOSER_MEMORY=8G   limit of its memory, 640 MB unless set

It reads a JSON object a line from standard input and writes one a line to
standard output. Standard error goes to proposer.log of the search.

  {"type":"hello"}      once: kernel, knobs, constraints, sources, limits
  {"type":"state"}      before each answer: default, best, elites with times,
                        insights of the profile, results of its proposals

It answers with one of

  {"type":"proposals","variants":[{"knobs":{"THREADS":256}}],"patches":[]}
  {"type":"proposals","patches":[{"diff":"...","about":"..."}]}
  {"type":"done"}

A patch is a unified diff against the sources. It is built beside the kernel's
folder, which never changes, and judged by every gate. kernel.toml, reference
and inputs cannot be patched. A program that hangs, dies or prints garbage is
started again; after three faults in a row it is not asked again. It never
fails the search. The patches and what became of them are in the record.

docs/proposers.md has every message; examples/proposer has two programs.`

const kernelsText = `A kernel is a folder with a CUDA source and a kernel.toml, which declares its
arguments, shapes, launch, reference, tolerance and work (docs/kernel-toml.md).
The commands take the kernel of

  --kernel DIR     this folder
  ./kernel.toml    else the working directory
  kernels          else the attention kernel of the working directory
                   else the attention kernel in the program

The reference computes the right outputs: a Python function with numpy, a
trusted kernel, or safetensors files. Its failure is not the kernel's: the
verdict is not-measured, standard error has the reason, the exit code is 14.

  --python PROGRAM       Python of the reference (default: ATTUNE_PYTHON, else
                         that of attune doctor --fix, else python3 in PATH);
                         bench runs its peers by it too
  --reference-timeout T  limit of one computation (default 2m)

  ATTUNE_REFERENCE_MEMORY=8G   limit of its memory; unless set, 640 MB and 512
                               times the bytes of the arrays

  attune run --kernel rmsnorm --device sim
  attune run --kernel rmsnorm rmsnorm+THREADS=512 --shapes rows=8,n=256
  attune list --kernel rmsnorm

On the simulator a run leaves out shapes of more than a million elements, and
says so. --shapes takes them. Knobs are -D macros of the source; a stage names a
variant. Without stages the kernel has one variant, with the kernel's name.`

const variantsText = `A variant is a stage, or a stage with other knob values:

  stage2
  stage2+TILE_N=32
  stage2+TILE_N=32+USE_XOR_SWIZZLE=1

A stage is a named variant of the kernel with a hypothesis, a parent, a required
speedup and a resource budget, all fixed before it runs. A knob is a build-time
choice (-DNAME=VALUE). Knobs that are not written have the stage's values.
Constraints forbid some combinations; the error names the constraint.

A selection, such as stage7, is a table that chooses a variant for each shape.
run, compare and bench take selections too.

  attune list stages       the stages and what they change
  attune list knobs        the knobs, their values and the constraints
  attune list selections   the tables

Without stages a kernel has one variant, with the kernel's name. The kernel is
found as attune help kernels says. The shell completes stages, knobs and values
after "attune completion" (stage2+TI<TAB>).`

const shapesText = `A shape of attention is BxHxSxD (batch, heads, queries, head dim) with options:

  1x8x512x64               batch 1, 8 heads, 512 queries and keys, head dim 64
  1x8x512x64:causal        each query sees the keys up to its own position
  1x8x128x64:kv=512        128 queries, 512 keys
  1x8x512x64:kvheads=2     8 heads of Q share 2 heads of K and V
  1x8x128x64:kv=512:causal options can be combined

A name stands for a group of shapes of the kernel. --shapes takes names and
shapes, with commas:

  attune run stage2 --shapes small,mission
  attune run stage2 --shapes small,1x8x1024x64:causal
  attune list shapes       the groups

A shape of a kernel that kernel.toml declares is a value for each axis, such as
rows=8,n=256; its names are those of [shapes]:

  attune run --kernel rmsnorm --shapes small,rows=8,n=256,rows=9,n=100

Benchmark shapes are those on which the performance gate compares a stage with
its parent; compare and bench take them too. The head dim of a shape must be
that of the variant (HEAD_DIM). The default of bench for attention is

  --shapes ` + benchShapes
