package ci

import (
	"encoding/xml"
	"io"
	"strconv"
	"time"
)

// Suite is a list of test cases.
type Suite struct {
	Name    string
	Elapsed time.Duration // 0 if it was not measured
	Cases   []Case
}

// Case is one test case. A name does not change from run to run, so that a reader can follow it.
type Case struct {
	Class, Name string
	Elapsed     time.Duration // 0 if it was not measured
	Outcome     Outcome
	Message     string // in a line, of a case that did not pass
	Text        string // details
}

// Outcome is the outcome of a case.
type Outcome int

// The outcomes.
const (
	Passed  Outcome = iota
	Failed          // a check has failed
	Broken          // it did not run to its end
	Skipped         // not run, or not measured
)

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr,omitempty"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string      `xml:"classname,attr"`
	Name    string      `xml:"name,attr"`
	Time    string      `xml:"time,attr,omitempty"`
	Failure *junitText  `xml:"failure,omitempty"`
	Error   *junitText  `xml:"error,omitempty"`
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

// JUnit writes a suite as JUnit XML. Times are in seconds. The encoder replaces characters that XML
// does not have.
func JUnit(w io.Writer, s Suite) error {
	suite := junitSuite{Name: s.Name, Tests: len(s.Cases), Time: seconds(s.Elapsed)}
	for _, c := range s.Cases {
		j := junitCase{Class: c.Class, Name: c.Name, Time: seconds(c.Elapsed)}
		text := &junitText{c.Message, c.Text}
		switch c.Outcome {
		case Failed:
			suite.Failures++
			j.Failure = text
		case Broken:
			suite.Errors++
			j.Error = text
		case Skipped:
			suite.Skipped++
			j.Skipped = text
		case Passed:
			if c.Text != "" {
				j.Output = &junitInner{c.Text}
			}
		}
		suite.Cases = append(suite.Cases, j)
	}
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

// seconds is a time, or an empty text if it was not measured.
func seconds(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return strconv.FormatFloat(d.Seconds(), 'f', 3, 64)
}
