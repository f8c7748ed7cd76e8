package lab

import (
	"fmt"
	"strings"

	"attune/internal/device"
	"attune/internal/run"
)

// complaints is what is wrong with the answers of a variant. What was found at one place is told once, with the first problem that showed it, however
// many did.
type complaints struct {
	list []complaint
	at   map[string]int // where in the list a finding stands
}

type complaint struct {
	first, last string // problems
	more        int    // problems after the first
	text        string
}

func (c *complaints) add(p problem, row *run.Correctness) {
	if c.at == nil {
		c.at = map[string]int{}
	}
	for _, f := range row.Findings {
		key := findingPlace(f)
		if i, known := c.at[key]; known {
			if c.list[i].last != p.String() {
				c.list[i].last = p.String()
				c.list[i].more++
			}
			continue
		}
		c.at[key] = len(c.list)
		c.list = append(c.list, complaint{first: p.String(), last: p.String(), text: findingText(f)})
	}
	for _, text := range row.Wrong[len(row.Findings):] {
		c.list = append(c.list, complaint{first: p.String(), text: text})
	}
}

func (c *complaints) reasons() []string {
	var all []string
	for _, one := range c.list {
		where := one.first
		if one.more > 0 {
			where += fmt.Sprintf(" and %d more", one.more)
		}
		all = append(all, where+": "+one.text)
	}
	return all
}

// findingText is a finding with its kind, which some texts begin with themselves.
func findingText(f device.Finding) string {
	if strings.HasPrefix(f.Text, f.Kind+" ") {
		return f.Text
	}
	return f.Kind + ": " + f.Text
}

// findingPlace is what a finding of one problem has in common with the same finding of another: the kind and the places in the code, which stand before
// the count where the text has one.
func findingPlace(f device.Finding) string {
	places, _, counted := strings.Cut(f.Text, " times): ")
	if counted {
		places = places[:strings.LastIndexByte(places, '(')+1]
	}
	return f.Kind + ": " + places
}
