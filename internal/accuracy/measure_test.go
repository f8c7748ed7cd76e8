package accuracy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/oracle"
	"attune/internal/tensor"
	"attune/internal/terminal"
)

var (
	smooth  = tensor.Recipe{SmoothK: true}
	rotated = tensor.Recipe{Hadamard: true}
)

func measure(t *testing.T, r Request, implementations ...Implementation) []Row {
	t.Helper()
	var rows []Row
	steps := 0
	progress := func(_ string, done, total int) {
		if want := len(r.Inputs) * len(r.Shapes) * len(r.Seeds) * len(r.Recipes) * len(implementations); done < steps || done >= want || total != want {
			t.Errorf("step %d of %d after step %d; want %d", done, total, steps, want)
		}
		steps = done
	}
	if err := Measure(t.Context(), r, implementations, progress, func(more []Row) { rows = append(rows, more...) }); err != nil {
		t.Fatal(err)
	}
	return rows
}

// A perfect kernel has no kernel error; its recipe error is the quantisation error of the inputs.
func TestPerfectKernel(t *testing.T) {
	r := Request{
		Inputs: []tensor.Distribution{tensor.Normal, tensor.Positive}, Shapes: []tensor.Shape{mustShape(t, "1x2x40x64"), mustShape(t, "1x1x33x64:causal")},
		Seeds: []uint64{0, 4}, Recipes: []tensor.Recipe{{}, rotated}, MaxWork: oracle.MaxWork,
	}
	rows := measure(t, r, Implementation{"perfect", oracle.Quantized}, Implementation{"e4m3", E4M3})
	var order []string
	for _, row := range rows {
		order = append(order, strings.Join([]string{row.Inputs, row.Variant, row.Recipe, row.Shape}, " "))
		if exact := row.KernelError.MaxErr == 0; exact != (row.Variant == "perfect") {
			t.Errorf("%s: kernel error %+v", order[len(order)-1], row.KernelError)
		}
		if row.RecipeError.RMSE <= row.KernelError.RMSE || row.RecipeError.RMSE < 2*row.BF16Error.RMSE || row.BF16Error.RMSE == 0 {
			t.Errorf("%s: recipe error %+v, kernel error %+v, BF16 %+v", order[len(order)-1], row.RecipeError, row.KernelError, row.BF16Error)
		}
	}
	var want []string
	for _, inputs := range r.Inputs {
		for _, variant := range []string{"perfect", "e4m3"} {
			for _, recipe := range r.Recipes {
				for _, shape := range r.Shapes {
					want = append(want, fmt.Sprintf("%s %s %s %s", inputs, variant, recipe, shape))
				}
			}
		}
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Above MostWork all errors cover the same sample of rows, and errors in other rows do not show.
func TestSampleOfRows(t *testing.T) {
	shape := mustShape(t, "1x2x200x64")
	r := Request{
		Inputs: []tensor.Distribution{tensor.Normal}, Shapes: []tensor.Shape{shape, mustShape(t, "1x1x40x64")},
		Seeds: []uint64{0}, Recipes: []tensor.Recipe{{}}, MaxWork: 1e6,
	}
	rows := measure(t, r, Implementation{"perfect", func(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error) {
		whole, err := oracle.Quantized(ctx, in, nil)
		if rows != nil {
			whole[100*64]++
			if slices.Contains(rows, 100) {
				t.Error("the sample has row 100; choose another row for this test")
			}
		}
		return oracle.SelectRows(rows, whole, 64), err
	}})
	if len(rows) != 2 || rows[0].Whole() || rows[0].Of != 400 || rows[0].Rows < 32 || !rows[1].Whole() {
		t.Errorf("rows: %+v", rows)
	}
	if rows[0].KernelError.MaxErr != 0 || rows[0].RecipeError.RMSE == 0 || rows[0].BF16Error.RMSE == 0 {
		t.Errorf("errors: %+v", rows[0])
	}
	text := &strings.Builder{}
	if err := Text(text, rows, terminal.Screen{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\n  1x2x200x64: compared %d of 400 rows\n", rows[0].Rows); !strings.HasSuffix(text.String(), want) {
		t.Errorf("%s\nwant %q at its end", text, want)
	}
}

// Rotation reduces the error of outliers, smoothing that of biases, and neither that of the other.
func TestRecipesReduceErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	rows := measure(t, Request{
		Inputs: []tensor.Distribution{tensor.Outliers, tensor.Biased}, Shapes: []tensor.Shape{mustShape(t, "1x4x256x64")},
		Seeds: []uint64{0, 1}, Recipes: []tensor.Recipe{{}, smooth, rotated, {SmoothK: true, Hadamard: true}}, MaxWork: oracle.MaxWork,
	}, Implementation{"e4m3", E4M3})
	rmse := map[string]float64{}
	for _, row := range rows {
		rmse[row.Inputs+" "+row.Recipe] = row.RecipeError.RMSE
	}
	check := func(inputs, recipe string, least, most float64) {
		t.Helper()
		if factor := rmse[inputs+" none"] / rmse[inputs+" "+recipe]; factor < least || factor > most {
			t.Errorf("%s: %s divides the error by %.3f, want %v to %v", inputs, recipe, factor, least, most)
		}
	}
	check("outliers", "hadamard", 1.15, 3)
	check("outliers", "smooth-k+hadamard", 1.15, 3)
	check("outliers", "smooth-k", 0.9, 1.1)
	check("biased", "smooth-k", 4, 8)
	check("biased", "smooth-k+hadamard", 4, 8)
	check("biased", "hadamard", 0.9, 1.1)
}

// Recipes do not change attention over the values before quantisation.
func TestRecipesKeepAttention(t *testing.T) {
	for _, d := range []tensor.Distribution{tensor.Outliers, tensor.Biased} {
		in := tensor.Draw(mustShape(t, "1x2x100x64:causal"), 2, tensor.Options{Distribution: d})
		want, err := oracle.Original(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, recipe := range []tensor.Recipe{smooth, rotated, {SmoothK: true, Hadamard: true}} {
			got, err := oracle.Original(t.Context(), recipe.Apply(in), nil)
			if err != nil {
				t.Fatal(err)
			}
			if e := errorsOf(got, want, 64); e.MaxErr > 1e-4 {
				t.Errorf("%v with %v: errors %+v", d, recipe, e)
			}
		}
	}
}

func TestMeasureFails(t *testing.T) {
	r := Request{
		Inputs: []tensor.Distribution{tensor.Normal}, Shapes: []tensor.Shape{mustShape(t, "1x1x8x64")}, Seeds: []uint64{0}, Recipes: []tensor.Recipe{{}},
	}
	why := errors.New("no output")
	nothing := func([]Row) { t.Error("rows without an output") }
	silent := func(string, int, int) {}
	fails := Implementation{"fails", func(context.Context, *tensor.Inputs, oracle.Rows) ([]float64, error) { return nil, why }}
	if err := Measure(t.Context(), r, []Implementation{fails}, silent, nothing); !errors.Is(err, why) {
		t.Errorf("error %v, want %v", err, why)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Measure(ctx, r, []Implementation{{"e4m3", E4M3}}, silent, nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
