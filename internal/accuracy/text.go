package accuracy

import (
	"fmt"
	"io"
	"strings"
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
}

// Text writes the rows of one distribution as a table: BF16 first, then the rows in order.
func Text(w io.Writer, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	lines := [][]string{
		{"", "", "", "against the unquantised inputs", "", "", "", "", "kernel error alone"},
		{"variant", "recipe", "shape", "RMSE", "relative", "max err", "cosine", "worst row", "RMSE", "relative", "cosine"},
	}
	seen := map[string]bool{}
	for _, r := range rows {
		if !seen[r.Shape] {
			seen[r.Shape] = true
			lines = append(lines, append([]string{"BF16", "host", r.Shape}, r.BF16Error.figures()...))
		}
	}
	for _, r := range rows {
		line := append([]string{r.Variant, r.Recipe, r.Shape}, r.RecipeError.figures()...)
		k := r.KernelError
		lines = append(lines, append(line, figure(k.RMSE), figure(k.Relative), fmt.Sprintf("%.6f", k.Cosine), r.RecipeError.warning()))
	}
	_, err := fmt.Fprintf(w, "inputs %s: %s\n%s%s", rows[0].Inputs, about[rows[0].Inputs], align(lines), samples(rows))
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

// warning reports what the figures exclude.
func (e Errors) warning() string {
	if e.NonFinite == 0 {
		return ""
	}
	return fmt.Sprintf("%d elements are not finite", e.NonFinite)
}

func figure(x float64) string { return fmt.Sprintf("%.2e", x) }

// align pads cells to columns. The first line has headings over several columns, which widen no
// column.
func align(lines [][]string) string {
	var widths []int
	for _, line := range lines[1:] {
		for i, cell := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], len(cell))
		}
	}
	text := &strings.Builder{}
	for _, line := range lines {
		row := &strings.Builder{}
		column := 0 // where the column begins
		for i, cell := range line {
			fmt.Fprintf(row, "%*s%s", max(0, column-row.Len()), "", cell)
			column += widths[i] + 2
		}
		fmt.Fprintf(text, "  %s\n", strings.TrimRight(row.String(), " "))
	}
	return text.String()
}
