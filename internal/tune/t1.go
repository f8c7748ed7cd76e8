package tune

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"attune/internal/rule"
	"attune/internal/spec"
)

// t1 is the part of a T1 file that defines the space.
type t1 struct {
	General struct {
		BenchmarkName string
	}
	ConfigurationSpace *struct {
		TuningParameters []struct {
			Name    string
			Values  json.RawMessage // an array, or the text of a Python list
			Default json.RawMessage
		}
		Conditions []struct {
			Expression string
		}
	}
	KernelSpecification struct {
		KernelName string
	}
}

// ReadT1 reads a search space in the T1 format of Kernel Tuner and the BAT benchmark suite.
func ReadT1(data []byte) (*Space, error) {
	var file t1
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("not a T1 definition: %w", err)
	}
	if file.ConfigurationSpace == nil || len(file.ConfigurationSpace.TuningParameters) == 0 {
		return nil, errors.New("not a T1 definition: it has no ConfigurationSpace with TuningParameters")
	}
	var knobs []Knob
	for i, p := range file.ConfigurationSpace.TuningParameters {
		if p.Name == "" {
			return nil, fmt.Errorf("tuning parameter %d has no Name", i+1)
		}
		values, err := t1Values(p.Values)
		if err != nil {
			return nil, fmt.Errorf("the values of %s: %w", p.Name, err)
		}
		knobs = append(knobs, Knob{Name: p.Name, Layer: spec.Micro, Values: values, Default: t1Default(p.Default, values)})
	}
	var rules []string
	for _, c := range file.ConfigurationSpace.Conditions {
		if strings.TrimSpace(c.Expression) != "" {
			rules = append(rules, c.Expression)
		}
	}
	name := file.General.BenchmarkName
	if name == "" {
		name = file.KernelSpecification.KernelName
	}
	return NewSpace(name, knobs, rules)
}

func t1Values(raw json.RawMessage) ([]rule.Value, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return evaluateList(text)
	}
	var values []rule.Value
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("want an array or the text of a Python list: %w", err)
	}
	return values, nil
}

// t1Default returns the index of the default. It is -1 if there is none among the values: published
// definitions have defaults that are not values, and lists.
func t1Default(raw json.RawMessage, values []rule.Value) int {
	var v rule.Value
	if json.Unmarshal(raw, &v) != nil {
		return -1
	}
	return slices.IndexFunc(values, func(w rule.Value) bool { return equal(v, w) })
}
