package sim

import (
	"attune/internal/device"
	"attune/internal/sim/count"
)

// named returns the simulator's counters under the names of Nsight Compute. Counters without such a
// name, because they count PTX and not machine code, begin with sim__.
func named(c *count.Counters) device.Counters {
	counters := device.Counters{}
	for _, list := range []map[string]uint64{global(c), shared(c), bulk(c), tensor(c), ownCounters(c)} {
		for name, n := range list {
			counters[name] = float64(n)
		}
	}
	for class, n := range c.ByClass() {
		counters["sim__inst_executed_class_"+class+".sum"] = float64(n)
	}
	return counters
}

// global names the traffic with global memory. A cp.async that bypasses L1 uses the same pipeline
// stage as a load and is counted as one there; a cached copy is not. The names with sass count both
// copies separately. The source page counts everything together.
func global(c *count.Counters) map[string]uint64 {
	copies := count.Sectors{
		Requests: c.CachedCopies.Requests + c.BypassCopies.Requests,
		Sectors:  c.CachedCopies.Sectors + c.BypassCopies.Sectors,
	}
	all := c.GlobalLoads.Sectors + c.GlobalStores.Sectors + c.GlobalAtomics.Sectors + copies.Sectors
	return map[string]uint64{
		"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum":             c.GlobalLoads.Requests + c.BypassCopies.Requests,
		"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum":              c.GlobalLoads.Sectors + c.BypassCopies.Sectors,
		"l1tex__t_requests_pipe_lsu_mem_global_op_st.sum":             c.GlobalStores.Requests,
		"l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum":              c.GlobalStores.Sectors,
		"l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum":            c.GlobalAtomics.Sectors,
		"sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum": copies.Requests,
		"sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum":  copies.Sectors,
		"memory_l2_theoretical_sectors_global":                        all,
	}
}

// shared names the traffic with shared memory. The loads include ldmatrix.
func shared(c *count.Counters) map[string]uint64 {
	return map[string]uint64{
		"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum":             c.SharedLoads.Conflicts,
		"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum":     c.SharedStores.Conflicts,
		"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum":   c.MatrixLoads.Conflicts,
		"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum": c.SharedCopies.Conflicts,
		"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum":                 c.SharedLoads.Wavefronts,
		"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum":                 c.SharedStores.Wavefronts,
		"memory_l1_wavefronts_shared": c.SharedLoads.Wavefronts + c.SharedStores.Wavefronts + c.SharedAtomics.Wavefronts +
			c.SharedCopies.Wavefronts,
	}
}

// bulk names the copies of the tensor memory accelerator.
func bulk(c *count.Counters) map[string]uint64 {
	return map[string]uint64{
		"l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum":  c.BulkLoadBytes,
		"l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum": c.BulkStoreBytes,
	}
}

// tensor names the work of the tensor cores. Instructions are counted by pipe: floating-point
// products of every format use the HMMA pipe, and those of a warpgroup are also counted separately.
func tensor(c *count.Counters) map[string]uint64 {
	float, integer := c.Products[count.HMMA]+c.Products[count.QMMA], c.Products[count.IMMA]+c.Products[count.BMMA]
	return map[string]uint64{
		"sm__inst_executed_pipe_tensor.sum":         float + integer + c.Products[count.DMMA],
		"sm__inst_executed_pipe_tensor_op_hmma.sum": float,
		"sm__inst_executed_pipe_tensor_op_imma.sum": integer,
		"sm__inst_executed_pipe_tensor_op_dmma.sum": c.Products[count.DMMA],
		"sm__inst_executed_pipe_tensor_op_gmma.sum": c.WarpgroupProducts,
		"sm__ops_path_tensor_src_fp16_dst_fp32.sum": c.Operations[count.FP16ToFP32],
		"sm__ops_path_tensor_src_fp16_dst_fp16.sum": c.Operations[count.FP16ToFP16],
		"sm__ops_path_tensor_src_bf16_dst_fp32.sum": c.Operations[count.BF16],
		"sm__ops_path_tensor_src_tf32_dst_fp32.sum": c.Operations[count.TF32],
		"sm__ops_path_tensor_src_fp8.sum":           c.Operations[count.FP8],
		"sm__ops_path_tensor_src_int8.sum":          c.Operations[count.Int8],
		"sm__ops_path_tensor_src_int4.sum":          c.Operations[count.Int4],
		"sm__ops_path_tensor_src_int1.sum":          c.Operations[count.Bits],
		"sm__ops_path_tensor_src_fp64.sum":          c.Operations[count.FP64],
	}
}

// ownCounters names the counters that count PTX.
func ownCounters(c *count.Counters) map[string]uint64 {
	return map[string]uint64{
		"sim__inst_executed.sum":              c.WarpInstructions(),
		"sim__inst_executed_op_mma.sum":       c.TensorOps,
		"sim__inst_executed_op_bar.sum":       c.Barriers,
		"sim__inst_executed_op_mbarrier.sum":  c.Waits,
		"sim__inst_executed_op_shared_ld.sum": c.SharedLoads.Requests,
		"sim__inst_executed_op_shared_st.sum": c.SharedStores.Requests,
		"sim__inst_executed_op_atom.sum":      c.Atomics,
		"sim__inst_executed_op_bulk.sum":      c.BulkLoads + c.BulkStores,
		"sim__data_bytes_mem_global.sum":      c.GlobalBytes,
		"sim__data_bytes_mem_shared.sum":      c.SharedBytes,
		"sim__data_bytes_mem_local.sum":       c.LocalBytes,
		"sim__data_bytes_op_cp_async.sum":     c.AsyncBytes,
	}
}
