package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/arch"
	"attune/internal/lab"
	"attune/internal/predict"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/terminal"
	"attune/kernels"
)

type predictOptions struct {
	chip, shapes string
}

func (a *app) predictCommand() *cobra.Command {
	var o predictOptions
	cmd := &cobra.Command{
		Use:   "predict [VARIANT...]",
		Short: "predict times on a card that is not there",
		Long: `Predict computes how long variants take on a card that is not there. It builds
them for the card, counts their machine code by how often the simulator executes
its source lines, and charges each pipe of a multiprocessor with its cycles. No
GPU is needed; a CUDA compiler is.

Times are predicted and were not measured. The model's constants are fitted to
times of attention on an H200. Every output has its errors on those of them that
the fit has not seen. Power limits are not in the model.

Chips: ` + arch.ChipNames(),
		Example: `  attune predict stage3b --chip L4 --shapes 1x8x512x64
  attune predict warp_d128 --chip L4 --kernel kernels/attention/warp
  attune predict softmax --kernel softmax --chip A100 --json`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.predict(cmd.Context(), o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.chip, "chip", "", "the card, such as L4")
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: the benchmark's)")
	return cmd
}

// predictedBasis says in a document that no time in it was measured.
const predictedBasis = "predicted"

// predictions is the JSON document of `attune predict`.
type predictions struct {
	SchemaVersion int               `json:"schema_version"`
	Basis         string            `json:"basis"`
	Chip          arch.Chip         `json:"chip"`
	Model         predict.Model     `json:"model"`
	Residuals     predict.Summary   `json:"residuals"`
	Rows          []*lab.Prediction `json:"rows"`
}

func (a *app) predict(ctx context.Context, o predictOptions, args []string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	request, err := o.request(kernel, args)
	if err != nil {
		return usageError{err}
	}
	w, err := a.newWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	document, err := w.predictAll(ctx, request, lab.NewProblem(kernel, folder, ""))
	if err == nil && kernel.Declared == nil && !request.named {
		err = a.predictRungs(ctx, request, document)
	}
	w.status.Clear()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(document)
	}
	a.printPredictions(document, shapeNames(kernel, request.shapes))
	return nil
}

// predictRequest says what to predict.
type predictRequest struct {
	chip     arch.Chip
	variants []spec.Variant
	shapes   []spec.Shape
	named    bool // the command line names the variants; otherwise those that the chip or shapes rule out are left out
}

// request checks the command line. All errors are reported together.
func (o predictOptions) request(kernel *spec.Kernel, args []string) (r predictRequest, err error) {
	var errs [4]error
	if r.chip, errs[0] = arch.ChipNamed(o.chip); o.chip == "" {
		errs[0] = fmt.Errorf("--chip names the card to predict for; known are %s", arch.ChipNames())
	}
	var selections []*spec.Selection
	r.variants, selections, errs[1] = named(kernel, args)
	if r.named = len(args) > 0; !r.named {
		r.variants = stageVariants(kernel)
	}
	for _, s := range selections {
		_, err := kernel.Variant(s.Name) // its error says how to name a variant of the selection
		errs[2] = errors.Join(errs[2], err)
	}
	if o.shapes == "" {
		o.shapes = strings.Join(kernel.Run.Benchmark, ",")
	}
	r.shapes, errs[3] = kernel.Shapes(o.shapes)
	return r, errors.Join(errs[:]...)
}

// predictAll predicts each variant on each shape.
func (w *workplace) predictAll(ctx context.Context, r predictRequest, p problem.Problem) (*predictions, error) {
	calibration := predict.Recorded()
	document := &predictions{SchemaVersion: 1, Basis: predictedBasis, Chip: r.chip, Model: calibration.Model, Residuals: calibration.Residuals}
	for _, v := range r.variants {
		shapes := r.shapes
		if !r.named {
			shapes = lab.Runnable(p, v, shapes)
			if r.chip.Best(v.Stage().Archs) == "" {
				continue
			}
		}
		for _, shape := range shapes {
			row, err := w.Predict(ctx, w.compiler, v, shape, r.chip)
			if err != nil {
				return nil, err
			}
			document.Rows = append(document.Rows, row)
		}
	}
	if len(document.Rows) == 0 {
		return nil, lab.RequestError(fmt.Sprintf("no stage of %s runs on %s and takes one of the shapes", w.Kernel.Name, r.chip.Name))
	}
	return document, nil
}

// predictRungs adds the last rung of the ladder on the card, if a shape has one.
func (a *app) predictRungs(ctx context.Context, r predictRequest, document *predictions) error {
	for _, rung := range predict.Rungs {
		asked := slices.ContainsFunc(r.shapes, func(s spec.Shape) bool { return s.String() == rung.Shape })
		if rung.Chip != r.chip.Name || !asked {
			continue
		}
		folder := kernels.All()[rung.Kernel]
		kernel, err := spec.Load(folder)
		if err != nil {
			return err
		}
		v, err := kernel.Variant(rung.Variant)
		if err != nil {
			return err
		}
		shapes, err := kernel.Shapes(rung.Of)
		if err != nil {
			return err
		}
		w, err := a.newWorkplace(ctx, kernel, folder)
		if err != nil {
			return err
		}
		row, err := w.Predict(ctx, w.compiler, v, shapes[0], r.chip)
		if err != nil {
			return err
		}
		row.Kernel, row.Shape = rung.Kernel, rung.Shape
		document.Rows = append(document.Rows, row)
	}
	return nil
}

// shapeNames are the names of the shapes whose axes would fill the table.
func shapeNames(kernel *spec.Kernel, shapes []spec.Shape) map[string]string {
	short := map[string]string{}
	for _, s := range shapes {
		if names := kernel.ShapeNames(s); len(names) > 0 && len(s.String()) > lab.LongShape {
			short[s.String()] = names[0]
		}
	}
	return short
}

// printPredictions prints a table whose heading says that its times are predicted. Some shapes have a
// short name there.
func (a *app) printPredictions(d *predictions, short map[string]string) {
	s, c := a.screen(), d.Chip
	s.Paragraph(a.stdout, "", fmt.Sprintf("predicted for %s, not measured: %s, %d multiprocessors at %.2f GHz, DRAM %.0f GB/s",
		withArticle(c.Name), c.Arch, c.Multiprocessors, c.GHz, c.DRAM/1e9), 2)
	s.Paragraph(a.stdout, "", d.Residuals.String(), 2)
	fmt.Fprintln(a.stdout)
	t := terminal.Table{Columns: []terminal.Column{
		{Name: "variant", Keep: true},
		{Name: "shape", Keep: true},
		{Name: "predicted us", Keep: true},
		{Name: "predicted TFLOP/s"},
		{Name: "limit", Keep: true},
		{Name: "blocks per SM", Optional: 2},
		{Name: "waves", Optional: 1},
		{Name: "claimed us"},
	}}
	claims, others := false, []string(nil)
	for _, r := range d.Rows {
		tflops, claim := "", ""
		if r.TFLOPS > 0 {
			tflops = fmt.Sprintf("%.1f", r.TFLOPS)
		}
		if us := predict.Claimed(r.Variant, r.Shape, c.Name); us > 0 {
			claim, claims = fmt.Sprintf("%.1f", us), true
		}
		name := r.Variant
		if r.Kernel != "" {
			name, others = r.Variant+" *", append(others, fmt.Sprintf("%s: the last rung, of kernels/%s", r.Variant, r.Kernel))
		}
		t.Rows = append(t.Rows, []string{
			name, cmp.Or(short[r.Shape], r.Shape), fmt.Sprintf("%.1f", r.Time.Microseconds), tflops, r.Time.Limit, strconv.Itoa(r.Time.Resident), fmt.Sprintf("%.2f", r.Time.Waves), claim,
		})
	}
	t.Write(a.stdout, s)
	for _, other := range others {
		fmt.Fprintln(a.stdout)
		s.Paragraph(a.stdout, "", "* "+other+", with the knobs of the shortest predicted time", 2)
	}
	if claims {
		fmt.Fprintln(a.stdout)
		s.Paragraph(a.stdout, "", fmt.Sprintf("claimed: by an earlier system for its kernels of the same stages on an L4, which attune has not measured; "+
			"it gave %.1f us for PyTorch in FP16", predict.Claims.PyTorch), 2)
	}
}

// withArticle is the name of a card behind its article: an L4, a 4090.
func withArticle(chip string) string {
	if strings.ContainsAny(chip[:1], "AHL") {
		return "an " + chip
	}
	return "a " + chip
}

// predictFlags are those of a run that a prediction heeds, or that need no answer from it.
var predictFlags = []string{"chip", "shapes", "device", "timeout", "verbose", "progress", "json", "color", "kernel", "ledger"}

// predictRun is a run on a chip that is not there: it predicts times, and checks nothing. Flags of the
// run that it would leave out are refused.
func (a *app) predictRun(ctx context.Context, o runOptions, args []string) error {
	chip, shapes := o.chip, o.shapes
	for _, name := range o.given {
		if !slices.Contains(predictFlags, name) {
			return usageError{fmt.Errorf("there is no %s here, and --%s is not for a prediction; leave it out, or leave out --chip", chip, name)}
		}
	}
	a.note(fmt.Sprintf("there is no %s here: times are predicted, and no kernel is checked; `attune run --device sim` checks them", chip))
	if shapes == "" {
		kernel, _, err := a.kernel()
		if err == nil && kernel.Declared == nil {
			shapes = predict.Claims.Shape
		}
	}
	return a.predict(ctx, predictOptions{chip, shapes}, args)
}
