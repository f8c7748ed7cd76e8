package toolchain

import (
	"bufio"
	"regexp"
	"strconv"
	"strings"
)

// Resources are the resources of one entry function, from the log of ptxas -v and the launch
// contract.
type Resources struct {
	Registers          int `json:"registers"`            // per thread
	StaticSharedBytes  int `json:"static_shared_bytes"`  // per block, allocated by the compiler
	DynamicSharedBytes int `json:"dynamic_shared_bytes"` // per block, requested at launch
	SpillStoreBytes    int `json:"spill_store_bytes"`
	SpillLoadBytes     int `json:"spill_load_bytes"`
	StackBytes         int `json:"stack_bytes"` // deepest call chain; largest frame if recursive
	Barriers           int `json:"barriers"`
	ConstantBytes      int `json:"constant_bytes"` // sum of all banks
}

// SharedBytes is the shared memory of a block, static and dynamic.
func (r Resources) SharedBytes() int { return r.StaticSharedBytes + r.DynamicSharedBytes }

// SpillBytes is the sum of spill stores and spill loads.
func (r Resources) SpillBytes() int { return r.SpillStoreBytes + r.SpillLoadBytes }

// The lines of ptxas -v about one function. Each amount has its own pattern, because CUDA releases
// differ in the amounts after "Used N registers", such as "8 bytes cumulative stack size".
var (
	ptxasEntry     = regexp.MustCompile(`Compiling entry function '([^']+)' for '([^']+)'`)
	ptxasFunction  = regexp.MustCompile(`Function properties for (\S+)`)
	ptxasRegisters = regexp.MustCompile(`\b[Uu]sed (\d+) registers`)
	ptxasBarriers  = regexp.MustCompile(`\bused (\d+) barriers`)
	ptxasShared    = regexp.MustCompile(`\b(\d+)(?:\+(\d+))? bytes smem`)
	ptxasConstant  = regexp.MustCompile(`\b(\d+) bytes cmem\[\d+\]`)
	ptxasStack     = regexp.MustCompile(`\b(\d+) bytes (?:cumulative stack size|stack frame)`)
	ptxasStores    = regexp.MustCompile(`\b(\d+) bytes spill stores`)
	ptxasLoads     = regexp.MustCompile(`\b(\d+) bytes spill loads`)
)

// parsePtxasLog parses the log of ptxas -v and returns the resources of each entry function by
// name. After an entry ptxas lists the functions that it calls and that were not inlined, with
// their own spills. It repeats them for each entry that calls them. They count towards the entry.
func parsePtxasLog(log string) map[string]Resources {
	entries := map[string]*Resources{}
	var current *Resources
	lines := bufio.NewScanner(strings.NewReader(log))
	lines.Buffer(nil, len(log)+1)
	for lines.Scan() {
		line := lines.Text()
		if m := ptxasEntry.FindStringSubmatch(line); m != nil {
			current = &Resources{}
			entries[m[1]] = current
			continue
		}
		// "Function properties for f" can return to an entry that was listed before.
		if m := ptxasFunction.FindStringSubmatch(line); m != nil && entries[m[1]] != nil {
			current = entries[m[1]]
			continue
		}
		if current != nil {
			current.readLine(line)
		}
	}
	found := map[string]Resources{}
	for name, r := range entries {
		found[name] = *r
	}
	return found
}

func (r *Resources) readLine(line string) {
	for _, amount := range []struct {
		pattern *regexp.Regexp
		into    *int
	}{
		{ptxasRegisters, &r.Registers},
		{ptxasBarriers, &r.Barriers},
		{ptxasStack, &r.StackBytes},
	} {
		if m := amount.pattern.FindStringSubmatch(line); m != nil {
			*amount.into = max(*amount.into, atoi(m[1]))
		}
	}
	// The spills of called functions are added to the entry's.
	if m := ptxasStores.FindStringSubmatch(line); m != nil {
		r.SpillStoreBytes += atoi(m[1])
	}
	if m := ptxasLoads.FindStringSubmatch(line); m != nil {
		r.SpillLoadBytes += atoi(m[1])
	}
	if m := ptxasShared.FindStringSubmatch(line); m != nil {
		r.StaticSharedBytes = atoi(m[1]) + atoi(m[2])
	}
	for _, m := range ptxasConstant.FindAllStringSubmatch(line, -1) {
		if strings.Contains(line, "egisters") { // the line about the module lists banks too
			r.ConstantBytes += atoi(m[1])
		}
	}
}

// atoi parses digits that a pattern has matched; an empty match is 0. A number of more than 31 bits
// is not a real amount; it becomes the largest int32, so that sums cannot overflow.
func atoi(digits string) int {
	n, _ := strconv.ParseInt(digits, 10, 32)
	return int(n)
}
