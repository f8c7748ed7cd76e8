package fleet

import (
	"fmt"
	"regexp"
	"strings"

	"attune/internal/device"
)

// ClassOf is the class of a device: workers of one class give results that may be compared. The
// simulator's results do not depend on the machine.
func ClassOf(f device.Facts, clocks string) string {
	if f.Kind == "sim" {
		return "sim"
	}
	name := strings.TrimPrefix(strings.ToLower(f.Name), "nvidia ")
	name = strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(name, "-"), "-")
	rest := fmt.Sprintf("%s|%d|%d|%s|%s|%d|%d|%s", f.Name, f.MemoryBytes>>28, f.Multiprocessors, f.Arch, f.Driver, f.ClockKHz, f.MemoryClockKHz, clocks)
	if len(name) > 40 {
		name = name[:40]
	}
	return name + "-" + hashOf([]byte(rest))[:8]
}
