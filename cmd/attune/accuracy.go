package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/accuracy"
	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/oracle"
	"attune/internal/problem/attention"
	"attune/internal/spec"
	"attune/internal/tensor"
)

type accuracyOptions struct {
	requestOptions
	device                   deviceOptions
	inputs, recipes, lengths string
	host                     bool
	sample                   sampleSeed
}

func (a *app) accuracyCommand() *cobra.Command {
	o := accuracyOptions{}
	cmd := &cobra.Command{
		Use:   "accuracy [VARIANT...]",
		Short: "measure the error of FP8 attention and of recipes on the host",
		Long: `Accuracy runs variants on several distributions of inputs, quantised by several
recipes. It prints each error twice, both against float64: against the original
inputs, which is what a user of the kernel gets, and against the quantised
inputs, which is what the kernel adds. Attention in BF16, computed on the host,
is printed for comparison. Default: the last stage of each kind of arithmetic.

  recipes   none        E4M3 with one descale factor per head
            per-tensor  one factor for all heads
            smooth-k    subtract the mean over the keys from each channel of K
            hadamard    rotate Q and K randomly; a+b joins recipes
  inputs    normal      Q, K and V from N(0, 1)
            outliers    N(0, 100) added to one element in a thousand
            biased      a value from N(0, 100) added to each channel of K
            positive    |V| for V, whose sums only grow
            peaked      queries 16 times as large
            rising low  scores that grow from key to key; from far below zero
            ones        1 for V
            dominant    each query a multiple of one key of score 10
            sink6 sink9 a first key of score 6 or 9 and value 0
            uniform     nearly equal scores, one-hot V by the key's position

The table says when only a sample of the query rows was computed.`,
		Example: `  attune accuracy
  attune accuracy stage2 --inputs outliers --recipe none,hadamard
  attune accuracy --lengths 512,2048,8192 --inputs positive
  attune accuracy --host --shapes 1x2x2048x128   no kernel, no device`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.accuracy(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.inputs, "inputs", "normal,outliers,biased,positive", "distributions, with commas")
	f.StringVar(&o.recipes, "recipe", "none,smooth-k,hadamard,smooth-k+hadamard", "recipes, with commas")
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: few and small)")
	f.StringVar(&o.lengths, "lengths", "", "one head of each of these lengths, with commas")
	f.StringVar(&o.seeds, "seeds", "", "seeds of the inputs, with commas (default: the spec's)")
	o.sample.flag(f)
	f.BoolVar(&o.host, "host", false, "also, or without a variant only, E4M3 products computed on the host")
	f.StringVar(&o.arch, "arch", "", "architecture (default: the device's, or newest)")
	o.device.flags(f)
	return cmd
}

// accuracyDocument is the JSON document of `attune accuracy`.
type accuracyDocument struct {
	SchemaVersion int            `json:"schema_version"`
	Device        *device.Facts  `json:"device,omitempty"` // nil if the host computed everything
	Seeds         []uint64       `json:"seeds"`
	SampleSeed    uint64         `json:"sample_seed"` // of the rows that were computed where not all were
	Rows          []accuracy.Row `json:"rows"`
}

// hostName is the host among the variants.
const hostName = "host-e4m3"

func (a *app) accuracy(ctx context.Context, o accuracyOptions, args []string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	if kernel.Declared != nil {
		return usageError{fmt.Errorf("accuracy studies FP8 attention; `attune run --json` has the errors of %s", kernel.Name)}
	}
	if _, _, err := o.request(kernel, args, "", true); err != nil { // before anything is started
		return err
	}
	w, err := a.newWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	document := accuracyDocument{SchemaVersion: 1, Rows: []accuracy.Row{}}
	onHost := o.host && len(args) == 0
	if !onHost {
		w.status.Set("looking for a device")
		if w.Device, err = a.findDevice(ctx, o.device); err != nil {
			return err
		}
		facts := w.Device.Facts()
		document.Device = &facts
	}
	request, variants, err := o.request(kernel, args, w.Device.Facts().Arch, onHost || w.Device.Simulated())
	if err != nil {
		return err
	}
	document.Seeds, document.SampleSeed = request.Seeds, request.SampleSeed
	if err := a.measureAccuracy(ctx, o, w, request, variants, &document); err != nil {
		return interruptedWith(ctx, err, fmt.Sprintf("%d rows were finished", len(document.Rows)))
	}
	if a.json {
		return a.printJSON(document)
	}
	return nil
}

// measureAccuracy adds rows to the document, and prints them as text when they are finished.
func (a *app) measureAccuracy(
	ctx context.Context, o accuracyOptions, w *workplace, request accuracy.Request, variants []spec.Variant, document *accuracyDocument,
) error {
	answerers, closeAll, err := o.answerers(ctx, w.Lab, variants)
	defer closeAll()
	if err != nil {
		return err
	}
	progress := func(step string, done, total int) { w.status.Set("%s (%d of %d)", step, done+1, total) }
	var written error
	err = accuracy.Measure(ctx, request, answerers, progress, func(rows []accuracy.Row) {
		w.status.Clear()
		document.Rows = append(document.Rows, rows...)
		if !a.json {
			written = errors.Join(written, accuracy.Text(a.stdout, rows, a.screen()))
		}
	})
	w.status.Clear()
	return errors.Join(err, written)
}

// answerers builds the variants and opens a device for each. closeAll closes the opened ones, also
// after an error.
func (o accuracyOptions) answerers(
	ctx context.Context, l *lab.Lab, variants []spec.Variant,
) (all []accuracy.Implementation, closeAll func(), err error) {
	var opened []*lab.VariantRunner
	closeAll = func() {
		for _, v := range opened {
			_ = v.Close() // the outputs are already here
		}
	}
	for _, v := range variants {
		answerer, err := l.NewVariantRunner(ctx, v, o.arch)
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, answerer)
		all = append(all, accuracy.Implementation{Name: v.String(), Compute: answerer.Output})
	}
	if o.host {
		all = append(all, accuracy.Implementation{Name: hostName, Compute: accuracy.E4M3})
	}
	return all, closeAll, nil
}

// request makes a request of the options, and returns the variants to measure.
func (o accuracyOptions) request(kernel *spec.Kernel, args []string, deviceArch string, slow bool) (accuracy.Request, []spec.Variant, error) {
	r := accuracy.Request{MaxWork: oracle.MaxWork, SampleSeed: oracle.RandomSeed()}
	if o.sample.seed != nil {
		r.SampleSeed = *o.sample.seed
	}
	if o.lengths != "" && o.shapes != "" {
		return r, nil, usageError{errors.New("--lengths and --shapes: want one of them")}
	}
	errs := [6]error{checkLimit(o.device.limit), o.device.sim.check()}
	var requested lab.Request
	requested, errs[2] = o.variantsOnly(kernel, args, slow)
	if len(args) == 0 {
		requested.Variants = nil
		if !o.host {
			requested.Variants = lab.Arithmetics(kernel, o.arch, deviceArch)
		}
	}
	r.Shapes, errs[3] = o.measuredShapes(requested, slow)
	r.Seeds, requested.Shapes = requested.Seeds, nil
	for _, shape := range r.Shapes {
		requested.Shapes = append(requested.Shapes, shape)
	}
	r.Inputs, errs[4] = each(o.inputs, tensor.ParseDistribution)
	r.Recipes, errs[5] = each(o.recipes, tensor.ParseRecipe)
	if err := errors.Join(errs[:]...); err != nil {
		return r, nil, usageError{err}
	}
	if len(requested.Variants) == 0 && !o.host {
		return r, nil, usageError{fmt.Errorf("no stage of %s is for %s; name a VARIANT, or use --host", kernel.Name, o.arch+deviceArch)}
	}
	return r, requested.Variants, requested.Check()
}

// measuredShapes are the requested shapes, or one head of each length, or the default. The last two
// have the head dim of the first variant.
func (o accuracyOptions) measuredShapes(requested lab.Request, slow bool) ([]tensor.Shape, error) {
	if o.shapes != "" {
		var all []tensor.Shape
		for _, s := range requested.Shapes {
			shape, ok := s.(tensor.Shape)
			if !ok {
				return nil, fmt.Errorf("shape %s: accuracy studies FP8 attention", s)
			}
			all = append(all, shape)
		}
		return all, nil
	}
	dims := 64
	if len(requested.Variants) > 0 {
		dims = cmp.Or(attention.HeadDim(requested.Variants[0]), dims)
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

// each parses every item of a list with commas.
func each[T any](list string, parse func(string) (T, error)) ([]T, error) {
	var all []T
	for item := range strings.SplitSeq(list, ",") {
		value, err := parse(item)
		if err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, nil
}
