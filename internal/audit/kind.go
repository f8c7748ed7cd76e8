package audit

import (
	"strings"

	"attune/internal/finding"
)

// register classifies special registers by name, without %.
func register(name string) (finding.Kind, bool) {
	switch {
	case strings.HasPrefix(name, "clock"), strings.HasPrefix(name, "globaltimer"), strings.HasPrefix(name, "pm"):
		return finding.Clock, true
	case name == "gridid", name == "current_graph_exec", strings.HasPrefix(name, "envreg"):
		return finding.LaunchID, true
	}
	return "", false
}

// external classifies functions of the driver's library by name. printf and assert only report to
// the host.
func external(name string) (finding.Kind, bool) {
	switch {
	case name == "vprintf", name == "__assertfail":
		return "", false
	case name == "malloc", name == "free":
		return finding.Allocation, true
	case strings.HasPrefix(name, "cudaLaunchDevice"), strings.HasPrefix(name, "cudaGetParameterBuffer"), strings.HasPrefix(name, "__cudaCDP"):
		return finding.DeviceLaunch, true
	}
	return finding.ExternalCall, true
}
