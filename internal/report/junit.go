package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"attune/internal/gate"
	"attune/internal/run"
)

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string      `xml:"classname,attr"`
	Name    string      `xml:"name,attr"`
	Failure *junitText  `xml:"failure,omitempty"`
	Skipped *junitText  `xml:"skipped,omitempty"`
	Output  *junitInner `xml:"system-out,omitempty"`
}

type junitText struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

type junitInner struct {
	Text string `xml:",chardata"`
}

// JUnit writes runs as a test suite: one case a gate, classed by kernel and variant. A gate that measured nothing is skipped. The facts
// stand in the texts, because that is what viewers show.
func JUnit(w io.Writer, runs []*run.Run) error {
	suite := junitSuite{Name: "attune"}
	for _, r := range runs {
		suite.Name = r.Kernel
		for _, g := range []struct {
			name    string
			status  gate.Status
			reasons []string
		}{
			{"resources", r.Gates.Resources, r.Reasons.Resources},
			{"correctness", r.Gates.Correctness, r.Reasons.Correctness},
			{"performance", r.Gates.Performance, r.Reasons.Performance},
			{"profile", r.Gates.Profile, r.Reasons.Profile},
		} {
			c := junitCase{Class: r.Kernel + "." + r.Variant, Name: g.name}
			text := junitText{Message: inShort(g.reasons), Text: fmt.Sprintf("run %s on %s (%s)", r.ID, deviceName(r), r.Arch)}
			switch g.status {
			case gate.Fail:
				suite.Failures++
				text.Text += "\n" + strings.Join(g.reasons, "\n")
				c.Failure = &text
			case gate.NotMeasured:
				suite.Skipped++
				text.Message = strings.Join(g.reasons, "; ") // its text has none of them
				c.Skipped = &text
			default:
				c.Output = &junitInner{strings.Join(append([]string{text.Text}, g.reasons...), "\n")}
			}
			suite.Cases = append(suite.Cases, c)
		}
	}
	suite.Tests = len(suite.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
