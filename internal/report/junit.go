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

// JUnit writes runs as a test suite with one case per gate, classed by kernel and variant. A gate
// that was not measured is skipped. Run and device are in the texts, which are what viewers show.
func JUnit(w io.Writer, runs []*run.Run) error {
	suite := junitSuite{Name: "attune"}
	for _, r := range runs {
		suite.Name = r.Kernel
		for _, g := range r.GateOutcomes() {
			c := junitCase{Class: r.Kernel + "." + r.Variant, Name: g.Name}
			text := junitText{Message: firstReason(g.Reasons), Text: fmt.Sprintf("run %s on %s (%s)", r.ID, deviceName(r), r.Arch)}
			switch g.Status {
			case gate.Fail:
				suite.Failures++
				text.Text += "\n" + strings.Join(g.Reasons, "\n")
				c.Failure = &text
			case gate.NotMeasured:
				suite.Skipped++
				text.Message = strings.Join(g.Reasons, "; ") // the text has no reasons
				c.Skipped = &text
			default:
				c.Output = &junitInner{strings.Join(append([]string{text.Text}, g.Reasons...), "\n")}
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
