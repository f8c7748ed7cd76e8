package sim

import (
	"attune/internal/device"
	"attune/internal/sim"
)

// hmmaFLOPs is the work of one HMMA.16816, which every product of halves becomes: one for mma.m16n8k16, two for wmma.m16n16k16, and two for a product of
// E4M3 on a chip that has none for mma.sync.
const hmmaFLOPs = 2 * 16 * 8 * 16

// counted gives the simulator's counters the names that Nsight Compute has for the same things. What has no name there, because it counts PTX and not
// machine code, begins with sim__.
func counted(c *sim.Counters) device.Counters {
	counters := device.Counters{
		"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum":          float64(c.GlobalLoadRequests),
		"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum":           float64(c.GlobalLoadSectors),
		"l1tex__t_requests_pipe_lsu_mem_global_op_st.sum":          float64(c.GlobalStoreRequests),
		"l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum":           float64(c.GlobalStoreSectors),
		"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": float64(c.SharedLoadConflicts),
		"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": float64(c.SharedStoreConflicts),
		"sm__inst_executed_pipe_tensor_op_hmma.sum":                float64(c.TensorFLOPs) / hmmaFLOPs,
		"sm__ops_path_tensor_src_fp16_dst_fp32.sum":                float64(c.TensorFLOPs),
		"sim__inst_executed.sum":                                   float64(c.WarpInstructions()),
		"sim__inst_executed_op_mma.sum":                            float64(c.TensorOps),
		"sim__inst_executed_op_bar.sum":                            float64(c.Barriers),
		"sim__inst_executed_op_shared_ld.sum":                      float64(c.SharedLoads),
		"sim__inst_executed_op_shared_st.sum":                      float64(c.SharedStores),
		"sim__inst_executed_op_atom.sum":                           float64(c.Atomics),
		"sim__data_bytes_mem_global.sum":                           float64(c.GlobalBytes),
		"sim__data_bytes_mem_shared.sum":                           float64(c.SharedBytes),
		"sim__data_bytes_mem_local.sum":                            float64(c.LocalBytes),
		"sim__data_bytes_op_cp_async.sum":                          float64(c.AsyncBytes),
	}
	for class, n := range c.ByClass() {
		counters["sim__inst_executed_class_"+class+".sum"] = float64(n)
	}
	return counters
}
