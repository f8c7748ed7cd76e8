package accuracy

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/terminal"
)

func TestText(t *testing.T) {
	screen := terminal.Screen{Width: 140}
	bf16 := Errors{RMSE: 0.00051, Relative: 0.0035, MaxErr: 0.003, Cosine: 0.99999, WorstRow: 0.9999}
	rows := []Row{
		{
			Variant: "stage6", Inputs: "outliers", Recipe: "none", Shape: "1x1x128x64", BF16Error: bf16,
			RecipeError: Errors{RMSE: 0.0144, Relative: 0.0733, MaxErr: 0.155, Cosine: 0.9975, WorstRow: 0.99},
			KernelError: Errors{RMSE: 0.00276, Relative: 0.0138, MaxErr: 0.1, Cosine: 0.9999, WorstRow: 0.99},
		},
		{
			Variant: "stage6", Inputs: "outliers", Recipe: "smooth-k+hadamard", Shape: "1x1x128x64", BF16Error: bf16,
			RecipeError: Errors{RMSE: 0.0116, Relative: 0.0594, MaxErr: 0.152, Cosine: 1, WorstRow: -0.5, NonFinite: 3},
			KernelError: Errors{RMSE: 0.00282, Relative: 0.0144, MaxErr: 0.1, Cosine: 0.9998, WorstRow: 0.99, NonFinite: 3},
		},
	}
	text := &strings.Builder{}
	if err := Text(text, rows, screen); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(`
inputs outliers: N(0, 1), and N(0, 100) added to one element in a thousand
  errors against the unquantised inputs, and of the kernel alone
  shape 1x1x128x64
  variant  recipe                 RMSE  relative   max err    cosine  worst row  kernel RMSE  kernel relative  kernel cosine
  BF16     host               5.10e-04  3.50e-03  3.00e-03  0.999990   0.999900            -                -              -
  stage6   none               1.44e-02  7.33e-02  1.55e-01  0.997500   0.990000     2.76e-03         1.38e-02       0.999900
  stage6   smooth-k+hadamard  1.16e-02  5.94e-02  1.52e-01  1.000000  -0.500000     2.82e-03         1.44e-02       0.999800
      3 elements are not finite
`, "\n")
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("the table (-want +got):\n%s", diff)
	}
	rows[1].Shape = "1x1x64x64"
	text.Reset()
	if err := Text(text, rows, screen); err != nil {
		t.Fatal(err)
	}
	for _, column := range []string{
		"inputs outliers: ", "  variant  recipe             shape           RMSE ", "  BF16     host               1x1x128x64  5.10e-04 ",
		"  BF16     host               1x1x64x64   5.10e-04 ", "  stage6   smooth-k+hadamard  1x1x64x64   1.16e-02 ",
	} {
		if !strings.Contains(text.String(), column) {
			t.Errorf("%q is missing in the table of two shapes:\n%s", column, text)
		}
	}
	if err := Text(broken{}, nil, screen); err != nil {
		t.Errorf("no rows: %v", err)
	}
	if err := Text(broken{}, rows, screen); err == nil {
		t.Error("the error of the writer is not returned")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("full") }
