package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/accuracy"
	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/oracle"
	"attune/internal/spec"
	"attune/internal/tensor"
)

type accuracyOptions struct {
	run                      runOptions
	inputs, recipes, lengths string
	host                     bool
}

func (a *app) accuracyCommand() *cobra.Command {
	o := accuracyOptions{run: runOptions{samples: 1}}
	cmd := &cobra.Command{
		Use:   "accuracy [VARIANT...]",
		Short: "say what FP8 attention costs in accuracy, and what recipes on the host win back",
		Long: `Accuracy runs variants on inputs of several kinds, quantised by several recipes, and tells each error twice, both times against
float64: against the inputs as they were before they were quantised, which is what a user of the kernel gets, and against the
quantised inputs, which is what the kernel alone adds. Beside them stands attention in BF16, computed on the host. With no variant it
takes the last stage of each kind of arithmetic.

  recipes   none        E4M3 with one descale factor a head, as all recipes but per-tensor
            per-tensor  one factor for all heads
            smooth-k    the mean over the keys is taken from each channel of K
            hadamard    Q and K are rotated: random signs, then a Walsh-Hadamard transform
            or several of them, joined by +
  inputs    normal      N(0, 1), as Q, K and V of all kinds but for what follows
            outliers    with N(0, 100) added to one number in a thousand
            biased      with a number from N(0, 100) added to each channel of K
            positive    with |V| for V, whose sums only grow
            peaked      with queries sixteen times as large
            rising      with Q and K whose scores grow from key to key
            low         the same, from far below zero
  figures   RMSE; relative, which is RMSE over the root mean square of the right answer; the largest error; the cosine of
            all rows together, and of the worst row

Where float64 would take minutes (2e10 multiply-adds), all errors are those of a sample of the query rows, which is said.`,
		Example: `  attune accuracy
  attune accuracy stage2 --inputs outliers --recipe none,hadamard --shapes 1x8x512x64
  attune accuracy --lengths 512,2048,8192,16384,65536 --inputs positive
  attune accuracy --host --shapes 1x2x2048x128   E4M3 products on the host: no kernel, no device`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.accuracy(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.inputs, "inputs", "normal,outliers,biased,positive", "kinds of inputs, with commas")
	f.StringVar(&o.recipes, "recipe", "none,smooth-k,hadamard,smooth-k+hadamard", "recipes, with commas")
	f.StringVar(&o.run.shapes, "shapes", "", "names or shapes, with commas (default: 1x8x512 and 1x8x2048 on a GPU, else 1x2x128)")
	f.StringVar(&o.lengths, "lengths", "", "one head of each of these lengths, with commas, in place of --shapes")
	f.StringVar(&o.run.seeds, "seeds", "", "seeds of the inputs, with commas, told together (default: the spec's for the device)")
	f.BoolVar(&o.host, "host", false, "also, or with no variant only, what E4M3 products would give, computed on the host")
	f.StringVar(&o.run.device, "device", "auto", "what runs the kernels: cuda, cuda:N, sim; auto is the GPU, or sim where there is none")
	f.StringVar(&o.run.arch, "arch", "", "build for this architecture (default: the device's, or the newest of the stage)")
	f.DurationVar(&o.run.limit, "timeout", defaultLimit, "how long one launch may take before it is ended")
	o.run.sim.flags(f, "on the simulator: ")
	return cmd
}

// measured is the JSON document of `attune accuracy`.
type measured struct {
	SchemaVersion int            `json:"schema_version"`
	Device        *device.Facts  `json:"device,omitempty"` // none where the host computed everything
	Seeds         []uint64       `json:"seeds"`
	Rows          []accuracy.Row `json:"rows"`
}

// hostName stands for the host among the variants.
const hostName = "host-e4m3"

func (a *app) accuracy(ctx context.Context, o accuracyOptions, args []string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	onHost := o.host && len(args) == 0
	// What is asked wrongly is said before anything is started.
	if _, _, err := o.request(kernel, args, "", true); err != nil {
		return err
	}
	images, _, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	status := a.status()
	defer status.Clear()
	l := newLab(kernel, images, status)
	document := measured{SchemaVersion: 1, Rows: []accuracy.Row{}}
	if !onHost {
		status.Set("looking for a device")
		if err := a.chooseDevice(ctx, l, o.run); err != nil {
			return err
		}
		document.Device = &l.Facts
	}
	request, variants, err := o.request(kernel, args, l.Facts.Arch, onHost || l.Facts.Kind == simKind)
	if err != nil {
		return err
	}
	document.Seeds = request.Seeds
	answerers, closeAll, err := o.answerers(ctx, l, variants)
	defer closeAll()
	if err != nil {
		return interruptedOr(ctx, err, len(document.Rows))
	}
	watch := func(doing string, done, total int) { status.Set("%s (%d of %d)", doing, done+1, total) }
	var written error
	err = accuracy.Measure(ctx, request, answerers, watch, func(rows []accuracy.Row) {
		status.Clear()
		document.Rows = append(document.Rows, rows...)
		if !a.json {
			written = errors.Join(written, accuracy.Text(a.stdout, rows))
		}
	})
	status.Clear()
	if err != nil {
		return interruptedOr(ctx, err, len(document.Rows))
	}
	if a.json {
		written = a.printJSON(document)
	}
	return written
}

func interruptedOr(ctx context.Context, err error, rows int) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; %d rows were finished", rows)
	}
	return err
}

// answerers builds the variants and opens a device for each. The function it gives closes those that were opened, also
// after an error.
func (o accuracyOptions) answerers(
	ctx context.Context, l *lab.Lab, variants []spec.Variant,
) (all []accuracy.Answerer, closeAll func(), err error) {
	var opened []*lab.Answerer
	closeAll = func() {
		for _, v := range opened {
			_ = v.Close() // what it had to say it has said
		}
	}
	for _, v := range variants {
		answerer, err := l.Answerer(ctx, v, o.run.arch)
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, answerer)
		all = append(all, accuracy.Answerer{Name: v.String(), Answer: answerer.Answer})
	}
	if o.host {
		all = append(all, accuracy.Answerer{Name: hostName, Answer: accuracy.E4M3})
	}
	return all, closeAll, nil
}

// request turns the flags into what is measured, and of which variants.
func (o accuracyOptions) request(kernel *spec.Kernel, args []string, deviceArch string, slow bool) (accuracy.Request, []spec.Variant, error) {
	var r accuracy.Request
	if o.lengths != "" && o.run.shapes != "" {
		return r, nil, usageError{errors.New("--lengths and --shapes: want one of them")}
	}
	asked, err := o.run.variantsOnly(kernel, args, slow)
	wrong := []error{err}
	if len(args) == 0 {
		asked.Variants = nil
		if !o.host {
			asked.Variants = lab.Arithmetics(kernel, o.run.arch, deviceArch)
		}
	}
	asked.Shapes, err = o.shapes(asked, slow)
	wrong = append(wrong, err)
	r.Shapes, r.Seeds = asked.Shapes, asked.Seeds
	r.MostWork = oracle.MostWork
	r.Inputs, err = each(o.inputs, tensor.ParseDistribution)
	wrong = append(wrong, err)
	r.Recipes, err = each(o.recipes, tensor.ParseRecipe)
	wrong = append(wrong, err)
	if err := errors.Join(wrong...); err != nil {
		return r, nil, usageError{err}
	}
	if len(asked.Variants) == 0 && !o.host {
		return r, nil, usageError{fmt.Errorf("no stage of %s is for %s; name a VARIANT, or take --host", kernel.Name, o.run.arch+deviceArch)}
	}
	return r, asked.Variants, asked.Check()
}

// shapes are those that were asked for, or one head of each length, or the default. The head dim of the latter two is that
// of the first variant.
func (o accuracyOptions) shapes(asked lab.Request, slow bool) ([]tensor.Shape, error) {
	if o.run.shapes != "" {
		return asked.Shapes, nil
	}
	dims := 64
	if len(asked.Variants) > 0 && lab.HeadDim(asked.Variants[0]) > 0 {
		dims = lab.HeadDim(asked.Variants[0])
	}
	var texts []string
	switch {
	case o.lengths != "":
		for length := range strings.SplitSeq(o.lengths, ",") {
			texts = append(texts, "1x1x"+length)
		}
	case slow:
		texts = []string{"1x2x128"}
	default:
		texts = []string{"1x8x512", "1x8x2048"}
	}
	for i := range texts {
		texts[i] += fmt.Sprintf("x%d", dims)
	}
	return each(strings.Join(texts, ","), tensor.ParseShape)
}

// each reads every item of a list with commas.
func each[T any](list string, parse func(string) (T, error)) ([]T, error) {
	var all []T
	for item := range strings.SplitSeq(list, ",") {
		one, err := parse(item)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
