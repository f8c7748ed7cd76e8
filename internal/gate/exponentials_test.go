package gate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/oracle"
	"attune/internal/spec"
)

func TestExponentialErrors(t *testing.T) {
	exact, alone := LimitsOfExponentials(spec.ExactExponentials, true), LimitsOfExponentials(spec.ApproximateExponentials, false)
	selected, none := LimitsOfExponentials(spec.ApproximateExponentials, true), LimitsOfExponentials("", false)
	at := func(mean, class, worst, key float64) *oracle.Exponentials {
		return &oracle.Exponentials{
			Mean: oracle.Ratio{Ratio: mean, Slack: 0.01}, RowClass: oracle.Ratio{Ratio: class, Slack: 0.02, Where: "3 mod 16"},
			WorstRow: oracle.Ratio{Ratio: worst, Slack: 0.4}, KeyClass: &oracle.KeyClass{Class: 9, Deviation: key, Slack: 0.002},
		}
	}
	for _, test := range []struct {
		what   string
		e      *oracle.Exponentials
		limits ExponentialLimits
		want   []string
	}{
		{"no comparison", nil, exact, nil},
		{"no exponentials in E4M3", at(9, 9, 9, 9), none, nil},
		{"exact", at(1.029, 1.039, 1.41, 0.0019), exact, nil},
		{"not exact", at(1.031, 1.041, 1.43, 0.0021), exact, []string{
			"exponentials: the error of all rows is 1.031x that of exact ones; 1.020x is allowed, and 0.010 for chance",
			"exponentials: the error of rows 3 mod 16 is 1.041x that of exact ones; 1.020x is allowed, and 0.020 for chance",
			"exponentials: the error of the worst row is 1.430x that of exact ones; 1.020x is allowed, and 0.400 for chance",
			"exponentials: the weight of keys 9 modulo the head dim is off by 0.21 %; 0.20 % is allowed",
		}},
		{"linear", at(1.209, 1.219, 2.01, 0.031), alone, nil},
		{"four of eight linear", at(1.109, 1.219, 2.01, 0.031), selected, nil},
		{"linear in a selection", at(1.111, 1, 1, 0), selected, []string{
			"exponentials: the error of all rows is 1.111x that of exact ones; 1.100x is allowed, and 0.010 for chance",
		}},
		{"worse than linear", at(1.21, 1.23, 2.03, 0.033), alone, []string{
			"exponentials: the error of rows 3 mod 16 is 1.230x that of exact ones; 1.200x is allowed, and 0.020 for chance",
			"exponentials: the error of the worst row is 2.030x that of exact ones; 1.620x is allowed, and 0.400 for chance",
			"exponentials: the weight of keys 9 modulo the head dim is off by 3.30 %; 3.20 % is allowed",
		}},
	} {
		if diff := cmp.Diff(test.want, ExponentialErrors(test.e, test.limits)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.what, diff)
		}
	}
	withoutKeys := at(1, 1, 1, 1)
	withoutKeys.KeyClass = nil
	if wrong := ExponentialErrors(withoutKeys, exact); wrong != nil {
		t.Errorf("without weights of keys: %v", wrong)
	}
}
