package accuracy

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"attune/internal/terminal"
)

// about describes each distribution.
var about = map[string]string{
	"normal":   "N(0, 1)",
	"outliers": "N(0, 1), and N(0, 100) added to one element in a thousand",
	"peaked":   "N(0, 1), with 16·Q for Q",
	"biased":   "N(0, 1), and a bias from N(0, 100) added to each channel of K",
	"positive": "N(0, 1), with |V| for V",
	"rising":   "N(0, 1), with Q and K whose scores grow from key to key",
	"low":      "N(0, 1), with Q and K whose scores grow from key to key, from far below zero",
	"ones":     "N(0, 1), with V = 1",
	"dominant": "N(0, 1), with each query a multiple of one key, whose score is about 10",
	"sink6":    "a first key with the score 6 and the value 0; other scores N(0, 1/4), |N(0, 1)| for V",
	"sink9":    "a first key with the score 9 and the value 0; other scores N(0, 1/4), |N(0, 1)| for V",
	"uniform":  "scores N(0, 1/64); V is 1 in the channel of the key's position, 0 elsewhere",
}

// columns are those of the table: the error against the unquantised inputs, then the error of the
// kernel alone.
var columns = []terminal.Column{
	{Name: "variant", Keep: true},
	{Name: "recipe", Keep: true},
	{Name: "shape"},
	{Name: "RMSE", Keep: true},
	{Name: "relative", Keep: true},
	{Name: "max err", Keep: true, Optional: 2},
	{Name: "cosine", Keep: true, Optional: 3},
	{Name: "worst row", Keep: true, Optional: 5},
	{Name: "kernel RMSE", Keep: true},
	{Name: "kernel relative", Keep: true, Optional: 1},
	{Name: "kernel cosine", Keep: true, Optional: 4},
}

// Text writes the rows of one distribution as a table: BF16 first, then the rows in order.
func Text(w io.Writer, rows []Row, s terminal.Screen) error {
	if len(rows) == 0 {
		return nil
	}
	t := terminal.Table{Indent: 2, Columns: columns}
	seen := map[string]bool{}
	for _, r := range rows {
		if !seen[r.Shape] {
			seen[r.Shape] = true
			t.Rows = append(t.Rows, append(append([]string{"BF16", "host", r.Shape}, r.BF16Error.figures()...), "-", "-", "-"))
			t.Notes = append(t.Notes, nil)
		}
	}
	for _, r := range rows {
		k := r.KernelError
		line := append([]string{r.Variant, r.Recipe, r.Shape}, r.RecipeError.figures()...)
		t.Rows = append(t.Rows, append(line, figure(k.RMSE), figure(k.Relative), fmt.Sprintf("%.6f", k.Cosine)))
		t.Notes = append(t.Notes, r.RecipeError.warnings())
	}
	var out bytes.Buffer
	s.Paragraph(&out, "", fmt.Sprintf("inputs %s: %s", rows[0].Inputs, about[rows[0].Inputs]), 2)
	s.Paragraph(&out, "  ", "errors against the unquantised inputs, and of the kernel alone", 4)
	t.Write(&out, s)
	out.WriteString(samples(rows))
	_, err := w.Write(out.Bytes())
	return err
}

// samples lists the shapes of which only some rows were compared.
func samples(rows []Row) string {
	text := &strings.Builder{}
	seen := map[string]bool{}
	for _, r := range rows {
		if !seen[r.Shape] && !r.Whole() {
			seen[r.Shape] = true
			fmt.Fprintf(text, "  %s: compared %s\n", r.Shape, r.Coverage)
		}
	}
	return text.String()
}

func (e Errors) figures() []string {
	return []string{figure(e.RMSE), figure(e.Relative), figure(e.MaxErr), fmt.Sprintf("%.6f", e.Cosine), fmt.Sprintf("%.6f", e.WorstRow)}
}

// warnings report what the figures exclude.
func (e Errors) warnings() []string {
	if e.NonFinite == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d elements are not finite", e.NonFinite)}
}

func figure(x float64) string { return fmt.Sprintf("%.2e", x) }
