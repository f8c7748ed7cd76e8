package profile

import (
	"slices"

	"attune/internal/device"
)

// Metric is one figure of a profile.
type Metric struct {
	Key   string `json:"key"`
	About string `json:"about"`
	Unit  string `json:"unit,omitempty"`
	// Exact says that PTX decides the figure: the simulator and a chip must agree on it.
	Exact bool `json:"exact"`

	// from names what the figure is made of, in Nsight Compute's words: the sum of those that are there of the first list that has any.
	from [][]string
	in   origin
}

// origin is where a figure comes from.
type origin int

const (
	asked    origin = iota // a metric that Nsight Compute must be asked for
	inSet                  // one that comes with its full set
	simAlone               // counted by the simulator, of PTX
)

// Keys that more than the tables speak of.
const (
	Time          = "time_ns"
	TensorBusy    = "tensor_busy_pct"
	TensorFLOPs   = "tensor_flops"
	DRAMBytes     = "dram_bytes"
	DRAMBusy      = "dram_busy_pct"
	L2Busy        = "l2_busy_pct"
	L1Busy        = "l1_busy_pct"
	SMBusy        = "sm_busy_pct"
	ALUBusy       = "alu_busy_pct"
	FMABusy       = "fma_busy_pct"
	XUBusy        = "xu_busy_pct"
	IssueBusy     = "issue_busy_pct"
	Occupancy     = "occupancy_pct"
	Registers     = "registers_per_thread"
	Waves         = "waves"
	LoadConflicts = "shared_load_conflicts"
	LoadUse       = "global_load_bytes_per_sector"
	StoreUse      = "global_store_bytes_per_sector"

	storeConflicts = "shared_store_conflicts"
	wavefronts     = "shared_wavefronts"
	latency        = "cycles_per_instruction"
	sharedLoads    = "ptx_shared_loads"
	sharedStores   = "ptx_shared_stores"
	stallPrefix    = "stall_"
)

// Metrics are all figures, in the order of the tables. Names are those of Nsight Compute 2025.3; what another release or chip does not know is left out
// there.
var Metrics = slices.Concat([]Metric{
	{Key: Time, About: "duration", Unit: "ns", from: one("gpu__time_duration.sum")},
	{Key: TensorBusy, About: "tensor pipe, while active", Unit: "%", from: [][]string{
		{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"},
		{"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"},
	}},
	{Key: "tensor_instructions", About: "tensor instructions", Unit: "inst", Exact: true, from: [][]string{{
		"sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__inst_executed_pipe_tensor_op_imma.sum", "sm__inst_executed_pipe_tensor_op_gmma.sum",
	}, {"sm__inst_executed_pipe_tensor.sum"}}},
	{Key: TensorFLOPs, About: "tensor FLOPs", Exact: true, from: [][]string{{
		"sm__ops_path_tensor_src_fp16_dst_fp32.sum", "sm__ops_path_tensor_src_fp16_dst_fp16.sum", "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
		"sm__ops_path_tensor_src_fp8.sum",
	}}},
	{Key: DRAMBytes, About: "DRAM bytes", Unit: "byte", from: [][]string{{"dram__bytes.sum"}, {"dram__bytes_read.sum", "dram__bytes_write.sum"}}},
	{Key: DRAMBusy, About: "DRAM throughput", Unit: "%", from: [][]string{
		{"dram__throughput.avg.pct_of_peak_sustained_elapsed"}, {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"},
	}},
	{Key: L2Busy, About: "L2 throughput", Unit: "%", from: one("lts__throughput.avg.pct_of_peak_sustained_elapsed")},
	{Key: "l2_sectors", About: "L2 sectors", Unit: "sector", from: one("lts__t_sectors.sum")},
	{Key: "l2_hit_pct", About: "L2 hit rate", Unit: "%", from: one("lts__t_sector_hit_rate.pct")},
	{Key: L1Busy, About: "L1 throughput, while active", Unit: "%", from: one("l1tex__throughput.avg.pct_of_peak_sustained_active")},
	{
		Key: "global_load_requests", About: "global load requests", Unit: "request", Exact: true,
		from: one("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"),
	},
	{
		Key: "global_load_sectors", About: "global load sectors", Unit: "sector", Exact: true,
		from: one("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"),
	},
	{
		Key: "global_store_requests", About: "global store requests", Unit: "request", Exact: true,
		from: one("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
	},
	{
		Key: "global_store_sectors", About: "global store sectors", Unit: "sector", Exact: true,
		from: one("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
	},
	{Key: LoadUse, About: "bytes used of a loaded sector", Unit: "byte", from: one("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio")},
	{Key: StoreUse, About: "bytes used of a stored sector", Unit: "byte", from: one("smsp__sass_average_data_bytes_per_sector_mem_global_op_st.ratio")},
	{
		Key: LoadConflicts, About: "shared load conflicts", Exact: true,
		from: one("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"),
	},
	{
		Key: storeConflicts, About: "shared store conflicts", Exact: true,
		from: one("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"),
	},
	{Key: wavefronts, About: "shared wavefronts", from: one("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")},
	{Key: "instructions", About: "warp instructions", Unit: "inst", from: one("smsp__inst_executed.sum")},
	{Key: IssueBusy, About: "issue slots, while active", Unit: "%", from: one("smsp__issue_active.avg.pct_of_peak_sustained_active")},
	{Key: SMBusy, About: "busiest unit of the SMs", Unit: "%", from: one("sm__throughput.avg.pct_of_peak_sustained_elapsed")},
	{Key: ALUBusy, About: "ALU pipe, while active", Unit: "%", from: one("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active")},
	{Key: FMABusy, About: "FMA pipe, while active", Unit: "%", from: one("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active")},
	{Key: XUBusy, About: "XU pipe, while active", Unit: "%", from: one("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active")},
	{Key: Occupancy, About: "warps of the most there can be", Unit: "%", from: one("sm__warps_active.avg.pct_of_peak_sustained_active")},
	{Key: Registers, About: "registers a thread", from: one("launch__registers_per_thread")},
	{Key: Waves, About: "waves of blocks", from: one("launch__waves_per_multiprocessor")},
	{
		Key: latency, About: "cycles between instructions of a warp", Unit: "cycle", from: one("smsp__average_warp_latency_per_inst_issued.ratio"),
		in: inSet,
	},
}, stalls(), []Metric{
	simulated("ptx_instructions", "PTX instructions of warps", "inst", "sim__inst_executed.sum"),
	simulated("ptx_integer", "... integer", "inst", "sim__inst_executed_class_integer.sum"),
	simulated("ptx_float", "... float", "inst", "sim__inst_executed_class_float.sum"),
	simulated("ptx_move", "... move", "inst", "sim__inst_executed_class_move.sum"),
	simulated("ptx_control", "... control", "inst", "sim__inst_executed_class_control.sum"),
	simulated("ptx_memory", "... memory", "inst", "sim__inst_executed_class_memory.sum"),
	simulated("ptx_sync", "... synchronisation", "inst", "sim__inst_executed_class_sync.sum"),
	simulated("ptx_warp", "... between lanes", "inst", "sim__inst_executed_class_warp.sum"),
	simulated("ptx_tensor", "... tensor", "inst", "sim__inst_executed_class_tensor.sum"),
	simulated("ptx_products", "PTX matrix products", "inst", "sim__inst_executed_op_mma.sum"),
	simulated("ptx_barriers", "warps at barriers", "", "sim__inst_executed_op_bar.sum"),
	simulated("ptx_atomics", "PTX atomics", "inst", "sim__inst_executed_op_atom.sum"),
	simulated(sharedLoads, "PTX shared loads", "inst", "sim__inst_executed_op_shared_ld.sum"),
	simulated(sharedStores, "PTX shared stores", "inst", "sim__inst_executed_op_shared_st.sum"),
	simulated("ptx_global_bytes", "bytes asked of global memory", "byte", "sim__data_bytes_mem_global.sum"),
	simulated("ptx_shared_bytes", "bytes asked of shared memory", "byte", "sim__data_bytes_mem_shared.sum"),
	simulated("ptx_local_bytes", "bytes asked of local memory", "byte", "sim__data_bytes_mem_local.sum"),
	simulated("ptx_async_bytes", "bytes brought by cp.async", "byte", "sim__data_bytes_op_cp_async.sum"),
})

func one(name string) [][]string { return [][]string{{name}} }

func simulated(key, about, unit, name string) Metric {
	return Metric{Key: key, About: about, Unit: unit, from: one(name), in: simAlone}
}

// stallReasons are what a warp may wait for, as Nsight Compute has them, with what they mean.
var stallReasons = []struct{ name, about string }{
	{"long_scoreboard", "global or local memory"},
	{"short_scoreboard", "shared memory or the XU pipe"},
	{"wait", "a fixed latency"},
	{"barrier", "a barrier"},
	{"membar", "a fence"},
	{"math_pipe_throttle", "an arithmetic pipe"},
	{"mio_throttle", "the queue of shared memory"},
	{"lg_throttle", "the queue of global memory"},
	{"tex_throttle", "the queue of textures"},
	{"gmma", "a product of a warpgroup"},
	{"branch_resolving", "a branch"},
	{"dispatch_stall", "the dispatcher"},
	{"drain", "stores at the end"},
	{"imc_miss", "a constant"},
	{"no_instruction", "the instruction cache"},
	{"sleeping", "itself, asleep"},
	{"misc", "something else"},
	{"not_selected", "its turn"},
	{"selected", "nothing: it issues"},
}

func stalls() []Metric {
	var all []Metric
	for _, s := range stallReasons {
		all = append(all, Metric{
			Key: stallPrefix + s.name, About: "stalled by " + s.about, Unit: "cycle",
			from: one("smsp__average_warps_issue_stalled_" + s.name + "_per_issue_active.ratio"), in: inSet,
		})
	}
	return all
}

// Values are figures by their keys. What was not measured is not there.
type Values map[string]float64

// ValuesOf finds the figures among counters by Nsight Compute's names.
func ValuesOf(counters device.Counters) Values {
	v := Values{}
	for _, m := range Metrics {
		for _, names := range m.from {
			sum, any := 0.0, false
			for _, name := range names {
				if value, ok := counters[name]; ok {
					sum, any = sum+value, true
				}
			}
			if any {
				v[m.Key] = sum
				break
			}
		}
	}
	return v
}

// Of is a figure, or nil where it was not measured.
func (v Values) Of(key string) *float64 {
	if value, ok := v[key]; ok {
		return &value
	}
	return nil
}

// hopperOnly are names that no other architecture knows.
var hopperOnly = []string{"sm__inst_executed_pipe_tensor_op_gmma.sum"}

// toAsk are the metrics to ask Nsight Compute for on an architecture, beside its full set: of every figure the first names that it goes by.
func toAsk(arch string) []string {
	var names []string
	for _, m := range Metrics {
		if m.in != asked {
			continue
		}
		for _, name := range m.from[0] {
			if arch == "sm_90" || !slices.Contains(hopperOnly, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
