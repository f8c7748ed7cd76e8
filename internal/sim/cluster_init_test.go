package sim

import (
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
)

// TestClusterInit has thread 0 of each block initialise an mbarrier, on which a thread of the other
// block arrives. A relaxed arrival at the cluster barrier orders nothing by itself. A
// fence.mbarrier_init before it publishes the initialisation and nothing else, an ordinary fence
// publishes everything.
func TestClusterInit(t *testing.T) {
	t.Parallel()
	const (
		init = "setp.eq.u32 %p1, %r0, 0;\n mov.u32 %r2, %cluster_ctarank;\n xor.b32 %r3, %r2, 1;\n mov.u32 %r4, bar;\n" +
			"mapa.shared::cluster.u32 %r5, %r4, %r3;\n mov.u32 %r6, s;\n mapa.shared::cluster.u32 %r7, %r6, %r3;\n" +
			"@%p1 st.shared.u32 [s], 9;\n @%p1 mbarrier.init.shared::cta.b64 [bar], 1;\n"
		initFence = "@%p1 fence.mbarrier_init.release.cluster;\n"
		relaxed   = "barrier.cluster.arrive.relaxed.aligned;\n barrier.cluster.wait.acquire.aligned;\n"
		arrive    = "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\n"
		wait      = "WAIT:\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bar], 0;\n @!%p2 bra WAIT;\n mov.u32 %r1, 1;\n"
		end       = "barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;\n"
		data      = "ld.shared::cluster.u32 %r1, [%r7];\n"
	)
	check := func(name, body string, races bool) {
		t.Helper()
		for seed := range uint64(6) {
			_, found, err := runClusters(t, body, Options{Seed: seed, Checks: true}, 4, [3]int{2, 1, 1})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			isRace := func(f finding.Finding) bool { return f.Kind == finding.Race }
			if races != slices.ContainsFunc(found, isRace) || !races && len(found) > 0 {
				t.Errorf("%s, seed %d: findings %v", name, seed, found)
			}
		}
	}
	check("the idiom", init+initFence+relaxed+arrive+wait+end, false)
	check("no fence", init+relaxed+arrive+wait+end, true)
	check("a fence of another thread", init+strings.Replace(initFence, "@%p1", "@!%p1", 1)+relaxed+arrive+wait+end, true)
	check("a fence before the initialisation", initFence+init+relaxed+arrive+wait+end, true)
	check("a cluster fence", init+"fence.acq_rel.cluster;\n"+relaxed+arrive+wait+end, false)
	check("a fence for the block", init+"fence.acq_rel.cta;\n"+relaxed+arrive+wait+end, true)
	check("a releasing arrival", init+strings.Replace(relaxed, "relaxed", "release", 1)+arrive+wait+end, false)
	check("data after a fence of the initialisation", init+initFence+relaxed+data+end, true)
	check("data after a cluster fence", init+"fence.acq_rel.cluster;\n"+relaxed+data+end, false)
	// A relaxed arrival at an mbarrier follows the same rules.
	relaxedArrive := strings.Replace(arrive, "release", "relaxed", 1)
	store := "@%p1 st.shared::cluster.u32 [%r7+4], 5;\n"
	check("a relaxed arrival", init+initFence+relaxed+store+relaxedArrive+wait+"ld.shared.u32 %r1, [s+4];\n"+end, true)
	check("a relaxed arrival after a fence", init+initFence+relaxed+store+"fence.acq_rel.cluster;\n"+relaxedArrive+wait+"ld.shared.u32 %r1, [s+4];\n"+end, false)
	relaxedWait := strings.Replace(wait, "acquire", "relaxed", 1)
	check("a relaxed wait", init+initFence+relaxed+store+arrive+relaxedWait+"ld.shared.u32 %r1, [s+4];\n"+end, true)
	check("a relaxed wait before a fence", init+initFence+relaxed+store+arrive+relaxedWait+"fence.acq_rel.cluster;\n ld.shared.u32 %r1, [s+4];\n"+end, false)
}

// TestExplicitCluster reads %is_explicit_cluster. An H200 gives 0 for a launch without clusters.
func TestExplicitCluster(t *testing.T) {
	t.Parallel()
	const read = "mov.pred %p1, %is_explicit_cluster;\n selp.u32 %r1, 1, 0, %p1;\n"
	for cluster, want := range map[[3]int]uint32{{}: 0, {1, 1, 1}: 0, {2, 1, 1}: 1} {
		out, found, err := runClusters(t, read, Options{Checks: true}, 2, cluster)
		if err != nil || len(found) > 0 || out[0] != want || out[63] != want {
			t.Errorf("clusters of %v: %v, %v, %v; want %d", cluster, out, found, err, want)
		}
	}
	for _, directive := range []string{".reqnctapercluster 1", ".explicitcluster\n.reqnctapercluster 1"} {
		text := strings.Replace(kernel(storing(read)), ")\n{", ")\n"+directive+"\n{", 1)
		if got := simulate(t, setup{text: text, arch: "sm_90a"}); got.out[0] != 1 {
			t.Errorf("%s: %d, want 1", directive, got.out[0])
		}
	}
}
