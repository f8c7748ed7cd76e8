package profile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"attune/internal/device"
)

// Launch is one launch in a report of Nsight Compute, with its metrics in base units: bytes,
// nanoseconds, hertz.
type Launch struct {
	Kernel   string
	Counters device.Counters
}

// ParseCSV parses the output of `ncu --csv`: the raw page, which has a column for each metric and a
// line of units, or another page, which has a line for each metric. It skips ncu's messages
// (==PROF==) and metrics without a value.
func ParseCSV(text []byte) ([]Launch, error) {
	reader := csv.NewReader(bytes.NewReader(table(text)))
	reader.FieldsPerRecord, reader.LazyQuotes = -1, true
	rows, err := reader.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read the CSV of ncu: %w", err)
	}
	if len(rows) == 0 {
		return nil, errors.New(`read the CSV of ncu: there is no line that begins with "ID"`)
	}
	header, rows := rows[0], rows[1:]
	if slices.Contains(header, "Metric Name") {
		return longLaunches(header, rows), nil
	}
	return wideLaunches(header, rows), nil
}

// table returns the lines of the table: from its header on, without ncu's messages.
func table(text []byte) []byte {
	var lines [][]byte
	for line := range bytes.Lines(text) {
		isHeader := bytes.HasPrefix(line, []byte(`"ID"`)) || bytes.HasPrefix(line, []byte("ID,"))
		if isHeader || len(lines) > 0 && !bytes.HasPrefix(line, []byte("==")) {
			lines = append(lines, line)
		}
	}
	return bytes.Join(lines, nil)
}

// wideLaunches parses one launch per line. The line without an ID has the units.
func wideLaunches(header []string, rows [][]string) []Launch {
	var launches []Launch
	var units []string
	for _, row := range rows {
		if row[0] == "" {
			units = row
			continue
		}
		l := Launch{Counters: device.Counters{}}
		for i, name := range header[:min(len(header), len(row))] {
			unit := ""
			if i < len(units) {
				unit = units[i]
			}
			l.add(name, unit, row[i])
		}
		launches = append(launches, l)
	}
	return launches
}

// longLaunches parses one metric per line. The metrics of one launch have the same ID.
func longLaunches(header []string, rows [][]string) []Launch {
	column := func(row []string, name string) string {
		if i := slices.Index(header, name); i >= 0 && i < len(row) {
			return row[i]
		}
		return ""
	}
	var launches []Launch
	last := ""
	for _, row := range rows {
		if id := row[0]; len(launches) == 0 || id != last {
			launches = append(launches, Launch{Counters: device.Counters{}})
			last = id
		}
		l := &launches[len(launches)-1]
		l.add("Kernel Name", "", column(row, "Kernel Name"))
		l.add(column(row, "Metric Name"), column(row, "Metric Unit"), column(row, "Metric Value"))
	}
	return launches
}

// add adds a column to a launch: the kernel's name, or a metric that has a value. The name of a
// metric has two underscores, or the prefix of the source page.
func (l *Launch) add(name, unit, value string) {
	if name == "Kernel Name" {
		l.Kernel = value
		return
	}
	if !strings.Contains(name, "__") && !strings.HasPrefix(name, sourcePrefix) {
		return
	}
	if number, ok := number(value); ok {
		l.Counters[name] = number * scale(unit)
	}
}

// number parses numbers such as 1,536,000 and 8.10. Empty text, n/a and names are not numbers.
func number(text string) (float64, bool) {
	value, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(text), ",", ""), 64)
	finite := err == nil && value-value == 0
	return value, finite
}

// scale is the factor from a unit to its base unit; 1 for an unknown unit.
func scale(unit string) float64 {
	unit, _, _ = strings.Cut(unit, "/") // in Kbyte/block and Gbyte/s the first part has the scale
	times := map[string]float64{
		"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
	}
	if factor, ok := times[unit]; ok {
		return factor
	}
	prefixes := map[byte]float64{'K': 1e3, 'M': 1e6, 'G': 1e9, 'T': 1e12}
	if len(unit) > 1 && prefixes[unit[0]] != 0 {
		return prefixes[unit[0]]
	}
	return 1
}
