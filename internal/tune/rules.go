package tune

// Rule is a line of a table that is not one of kernel.toml: the form that problems have for which its
// condition holds and no earlier one does.
type Rule struct {
	When  string // a conjunction of comparisons; empty in the last line
	Form  int
	Takes int // examples
}

// Rules derives a short table over names, from the values that each example has for them and the costs
// of the forms on each example. A form that cannot take an example has an infinite cost. Every example
// gets a form within a share of its best one.
func Rules(names []string, values [][]int, costs [][]float64, share float64) ([]Rule, error) {
	cover, err := FewestForms(costs, share)
	if err != nil {
		return nil, err
	}
	loss, err := losses(costs, share)
	if err != nil {
		return nil, err
	}
	terms := make([]term, len(names))
	for i, name := range names {
		terms[i] = term{name, true, true}
	}
	var examples []example
	for i, of := range values {
		e := example{values: of}
		for _, form := range cover.Forms {
			e.loss = append(e.loss, loss[form][i])
		}
		examples = append(examples, e)
	}
	lines, err := deriveTable(terms, examples)
	if err != nil {
		return nil, err
	}
	var rules []Rule
	for _, l := range lines {
		rules = append(rules, Rule{l.when, cover.Forms[l.form], len(l.takes)})
	}
	return rules, nil
}
