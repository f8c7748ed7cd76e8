package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"attune/internal/arch"
	"attune/internal/lab"
	"attune/internal/predict"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/terminal"
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
	f.StringVar(&o.chip, "chip", "", "the card: "+arch.ChipNames())
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: the benchmark's)")
	return cmd
}

// predictions is the JSON document of `attune predict`.
type predictions struct {
	SchemaVersion int               `json:"schema_version"`
	Basis         string            `json:"basis"` // predicted: no time in the document was measured
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
	chip, variants, shapes, err := o.request(kernel, args)
	if err != nil {
		return usageError{err}
	}
	w, err := a.newWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.status.Clear()
	document, err := a.predictAll(ctx, w, lab.NewProblem(kernel, folder, ""), chip, variants, shapes)
	w.status.Clear()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(document)
	}
	a.printPredictions(document)
	return nil
}

// request checks the command line. All errors are reported together.
func (o predictOptions) request(kernel *spec.Kernel, args []string) (chip arch.Chip, variants []spec.Variant, shapes []spec.Shape, err error) {
	var errs [4]error
	chip, errs[0] = arch.ChipNamed(o.chip)
	variants, selections, named := named(kernel, args)
	errs[1] = named
	if len(args) == 0 {
		variants = stageVariants(kernel)
	}
	for _, s := range selections {
		_, err := kernel.Variant(s.Name) // its error says how to name a variant of the selection
		errs[2] = errors.Join(errs[2], err)
	}
	if o.shapes == "" {
		o.shapes = strings.Join(kernel.Run.Benchmark, ",")
	}
	shapes, errs[3] = kernel.Shapes(o.shapes)
	return chip, variants, shapes, errors.Join(errs[:]...)
}

// predictAll predicts variants on the shapes that they take. Without a variant that takes one it fails.
func (a *app) predictAll(ctx context.Context, w *workplace, p problem.Problem, chip arch.Chip, variants []spec.Variant, shapes []spec.Shape) (*predictions, error) {
	calibration := predict.Recorded()
	document := &predictions{SchemaVersion: 1, Basis: "predicted", Chip: chip, Model: calibration.Model, Residuals: calibration.Residuals}
	for _, v := range variants {
		runnable := shapes
		if len(variants) > 1 {
			runnable = lab.Runnable(p, v, shapes)
		}
		for _, shape := range runnable {
			row, err := w.Predict(ctx, w.compiler, v, shape, chip)
			if err != nil {
				return nil, err
			}
			document.Rows = append(document.Rows, row)
		}
	}
	if len(document.Rows) == 0 {
		return nil, lab.RequestError("none of the variants takes one of the shapes")
	}
	return document, nil
}

// printPredictions prints a table whose heading says that its times are predicted.
func (a *app) printPredictions(d *predictions) {
	s := a.screen()
	c := d.Chip
	s.Paragraph(a.stdout, "", fmt.Sprintf("predicted for %s, not measured: %s, %d multiprocessors at %.2f GHz, DRAM %.0f GB/s", c.Name, c.Arch, c.Multiprocessors, c.GHz, c.DRAM/1e9), 2)
	s.Paragraph(a.stdout, "", d.Residuals.String(), 2)
	fmt.Fprintln(a.stdout)
	t := terminal.Table{Columns: []terminal.Column{{Name: "variant", Keep: true}, {Name: "shape", Keep: true}, {Name: "predicted us", Keep: true}, {Name: "TFLOP/s"}, {Name: "limit", Keep: true}, {Name: "blocks", Keep: true}, {Name: "waves"}}}
	for _, r := range d.Rows {
		tflops := ""
		if r.TFLOPS > 0 {
			tflops = fmt.Sprintf("%.1f", r.TFLOPS)
		}
		t.Rows = append(t.Rows, []string{r.Variant, r.Shape, fmt.Sprintf("%.1f", r.Time.Microseconds), tflops, r.Time.Limit, fmt.Sprint(r.Time.Resident), fmt.Sprintf("%.2f", r.Time.Waves)})
	}
	t.Write(a.stdout, s)
}
