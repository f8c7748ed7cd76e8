package run

import "fmt"

// check refuses a run that lacks figures which are always recorded together. Reports rely on it.
func (r *Run) check() error {
	for i, p := range r.Performance {
		if p.ParentRatio != nil && (p.ParentP50US == nil || p.RatioLow == nil || p.RatioHigh == nil) {
			return fmt.Errorf("run %s is damaged: performance.%d of its run.json has a parent_ratio without parent_p50_us, ratio_low and ratio_high", r.ID, i)
		}
	}
	return nil
}

// check refuses a bench that lacks figures which are always recorded together.
func (b *Bench) check() error {
	for i, row := range b.Rows {
		if row.P50US != nil && row.TFLOPS == nil && b.Problem == nil {
			return fmt.Errorf("bench %s is damaged: rows.%d of its bench.json has a p50_us without tflops", b.ID, i)
		}
	}
	return nil
}
