// Attention with the queries as the rows of both products, for problems that fill the chip with tiles of 64 queries a warpgroup.
//
//   S = Q * K^T     (queries, keys): Q in registers, or in shared memory where a wide O or many warpgroups need those; K in shared memory
//   P = exp2(S - max)               rounded to E4M3 times 2^8, in the registers that the second product takes it from
//   O = P * V       (queries, D):    V^T in shared memory
//
// Roles, each with its share of the registers (setmaxnreg):
//   one warpgroup asks for tiles of K and V by tensor copies, as far ahead as the ring of KV_STAGES tiles goes, and turns V over: wgmma takes E4M3
//   operands only with the summed dimension along the row, and V comes with D along it
//   TILE_M / 64 warpgroups compute 64 rows each. With USE_OVERLAP they weigh the scores of one step while P * V of the step before is under way. Else one
//   is to have the tensor cores while another takes exponentials: each begins STAGGER_CYCLES behind the one before, and stays so
//   KEY_GROUPS warpgroups with the same 64 rows take steps in turn, and merge what they have in the end: tiles of 64 rows are few, and one warpgroup alone
//   leaves the multiprocessor idle half of the time
//
// Blocks stay and take tile after tile, so that the copies for the next tile run while the last rows of one are written.
//
// Where things lie:
//   keys   a lane has scores of keys 2t, 2t+1, 8+2t, 9+2t of 16, and its P holds them as places 4t..4t+3. V^T has its keys in the same order.
//   O      row n of V^T is column 2n of 16, or 2(n-8)+1. So a lane has columns 4t..4t+3 of each 16 of O.
//   sums   eight rows of ones below V^T make the sum of P one more column of the product: the sum of what was multiplied, rounding included.
//
// The tensor cores keep 13 bits of an E4M3 sum. It leaves them after every step, TILE_N keys, and from there on is FP32.
#pragma once

#include "../common/exp2.cuh"
#include "../common/problem.cuh"
#include "../common/ptx.cuh"
#include "knobs.cuh"
#include "producers.cuh"
#include "queries.cuh"
#include "ring.cuh"
#include "rows.cuh"
#include "schedule.cuh"
#include "softmax.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

namespace attention {

constexpr bool kByIntegers = knob::kHeadDim == 64 && kConsumers != 3;  // the greatest score is found; else it costs registers that are needed
// Q and the first K and V are asked for before the block has met. Three warpgroups have too few registers for a Q of their own until then, and two with Q
// in shared memory have a wide O, for which the compiler finds registers only if nothing stands before.
constexpr bool kSoon = knob::kQInShared ? kConsumers != 2 : kConsumers < 3;

// ---- the warpgroups that compute -----------------------------------------------------------------------------------------

// The rows of ones below V^T, of every stage, by the warpgroups that compute. No one writes there again. Those that turn V over have met with them before,
// and their fence is for these rows too.
__device__ __forceinline__ void write_ones(const Ring& ring) {
  constexpr uint32_t kOnes = 0x38383838;  // 1.0 in E4M3, four times
  constexpr int kPieces = 8 * kPanelKeys / 16, kAll = kStages * kPanels * kPieces, kAtOnce = kThreads - 128;  // of 16 bytes
  const auto write = [&](int i) {
    unsigned char* rows = ring.turned + i / kPieces * kPanelBytes + kPanelKeys * knob::kHeadDim;
    reinterpret_cast<uint4*>(rows)[i % kPieces] = make_uint4(kOnes, kOnes, kOnes, kOnes);
  };
  const int own = threadIdx.x - 128;
  if constexpr (kConsumers == 1) {  // problems are short
#pragma unroll
    for (int first = 0; first < kAll; first += kAtOnce) {
      if (first + kAtOnce <= kAll || first + own < kAll) write(first + own);
    }
  } else {  // with no loop the compiler keeps the ring's address where these stores want it, and every product waits for a move
    for (int i = own; i < kAll; i += kAtOnce) write(i);
  }
}

// s (64, kKeys) = Q (64, D) * K (kKeys, D)^T.
template <bool kInShared>
__device__ __forceinline__ void multiply_keys(float (&s)[kScores], const Queries<kInShared>& q, uint32_t k) {
  ptx::forget(s);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < knob::kHeadDim / 32; ++i) {
    const int box = 32 * i / kRowBytes, column = 32 * i % kRowBytes;
    q.multiply(s, i, ptx::wgmma_descriptor_swizzled<kRowBytes>(k + (box * kBoxBytes + column) / 16));
  }
  ptx::wgmma_commit_group();
}

// Which exponentials are taken by lines, two neighbours at a time: these become a pair of halves, in the place of the first.
__device__ __forceinline__ constexpr bool by_lines(int i) { return by_polynomial<knob::kPolynomialEighths>(i / 2); }

// (64, kKeys) of P, as the first operand of a product for every 32 keys.
struct Weights {
  uint32_t of[kKeys / 32][4];

  __device__ __forceinline__ void pack(const float (&s)[kScores]) {
#pragma unroll
    for (int i = 0; i < kKeys / 32; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int first = 16 * i + r / 2 * 8 + r % 2 * 2;  // of two blocks of eight keys, the upper or the lower row
        of[i][r] = two(s, first) | two(s, first + 4) << 16;
      }
    }
  }

 private:
  __device__ __forceinline__ static uint32_t two(const float (&s)[kScores], int first) {
    return by_lines(first) ? ptx::cvt_rn_satfinite_e4m3x2_f16x2(__float_as_uint(s[first])) : ptx::cvt_rn_satfinite_e4m3x2_f32(s[first], s[first + 1]);
  }
};

// d (64, kColumns) = P (64, kKeys) * V (kKeys, kColumns), from a row of V^T on.
template <int kColumns>
__device__ __forceinline__ void multiply_values(float (&d)[kColumns / 2], const Weights& p, uint32_t turned) {
  ptx::forget(d);
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kKeys / 32; ++i) {
    const int panel = 32 * i / kPanelKeys, column = 32 * i % kPanelKeys;
    const uint64_t b = ptx::wgmma_descriptor_swizzled<kPanelKeys>(turned + (panel * kPanelBytes + column) / 16);
    ptx::wgmma_m64k32_e4m3<kColumns>(d, p.of[i], b, i > 0);
  }
  ptx::wgmma_commit_group();
}

// Of the keys of a step a lane's rows see those before `end`, counted from the lane's first.
__device__ __forceinline__ void mask(float (&s)[kScores], const int (&end)[2]) {
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    if (i / 4 * 8 + i % 2 >= end[i / 2 % 2]) s[i] = -INFINITY;
  }
}

// NaN is greater than all: lines do not keep it, so that the base of a row must.
__device__ __forceinline__ float greater(float a, float b) { return ptx::max_nan(a, b); }
__device__ __forceinline__ int greater(int a, int b) { return max(a, b); }

// The greatest score of a row, upper or lower, over the four lanes that have it.
template <typename Number>
__device__ __forceinline__ Number over_quad(Number greatest) {
  greatest = greater(greatest, __shfl_xor_sync(0xFFFFFFFF, greatest, 1));
  return greater(greatest, __shfl_xor_sync(0xFFFFFFFF, greatest, 2));
}

__device__ __forceinline__ float greatest_of(const float (&s)[kScores], int half) {
  float greatest = greater(s[2 * half], s[2 * half + 1]);
#pragma unroll
  for (int i = 4; i < kScores; i += 4) greatest = greater(greatest, greater(s[i + 2 * half], s[i + 2 * half + 1]));
  return over_quad(greatest);
}

// Hopper has an instruction for the greatest of three integers and none for three floats; and the bits of floats, as integers, are in their order as long
// as the greatest is not negative. If it is, they are in the wrong order, and all less than 0.
__device__ __forceinline__ int greatest_bits_of(const float (&s)[kScores], int half) {
  constexpr int kChains = kScores % 16 ? 2 : 4;  // that do not wait for each other
  int greatest[kChains];
#pragma unroll
  for (int i = 0; i < kScores / 4; ++i) {
    const int first = __float_as_int(s[4 * i + 2 * half]), second = __float_as_int(s[4 * i + 2 * half + 1]);
    greatest[i % kChains] = i < kChains ? max(first, second) : max(max(greatest[i % kChains], first), second);
  }
#pragma unroll
  for (int chain = 1; chain < kChains; ++chain) greatest[0] = max(greatest[0], greatest[chain]);
  return over_quad(greatest[0]);
}

// Lowers the base of each row to what this step's scores ask for; `keep` is what remains of earlier sums.
__device__ __forceinline__ void lower_base(const float (&s)[kScores], Rows& rows, float (&keep)[2], float factor) {
  float greatest[2];
  bool known = false;
  if constexpr (kByIntegers) {
    const int upper = greatest_bits_of(s, 0), lower = greatest_bits_of(s, 1);
    greatest[0] = __int_as_float(upper), greatest[1] = __int_as_float(lower);
    known = __all_sync(0xFFFFFFFF, (upper | lower) >= 0);
  }
  if (!known) greatest[0] = greatest_of(s, 0), greatest[1] = greatest_of(s, 1);
#pragma unroll
  for (int half = 0; half < 2; ++half) keep[half] = lowered(rows.base[half], greatest[half], factor);
}

// Scores to what their weights are exponentials of, or for lines to those.
template <int kFirst = 0, int kEnd = kScores>
__device__ __forceinline__ void scale(float (&s)[kScores], const Rows& rows, float factor) {
  constexpr bool kSaturates = knob::kHeadDim < 256;  // which takes a register more than a wide O leaves
#pragma unroll
  for (int i = kFirst; i < kEnd; ++i) {
    const float base = rows.base[i / 2 % 2];
    if (!by_lines(i)) {
      s[i] = fmaf(s[i], factor, base);
    } else if constexpr (kSaturates) {
      s[i] = line_by_saturation(s[i], factor / kLineRange, fmaf(base, 1 / kLineRange, kLine / kLineRange));
    } else {
      s[i] = line_by_maximum(s[i], factor, base + (kLine + kLineOrigin));
    }
  }
}

template <int kFirst = 0, int kEnd = kScores>
__device__ __forceinline__ void exponentiate(float (&s)[kScores]) {
#pragma unroll
  for (int i = kFirst; i < kEnd; i += 2) {
    if (by_lines(i)) {
      s[i] = __uint_as_float(halves_of(s[i], s[i + 1]));
    } else {
      s[i] = ptx::ex2_approx_ftz(s[i]), s[i + 1] = ptx::ex2_approx_ftz(s[i + 1]);
    }
  }
}

// A part of the product of P and V: kPartColumns columns of O, and with the last ones the sums of P.
template <int kOf>
struct Part {
  static constexpr int kNumber = kOf;
  static constexpr bool kLast = kOf == kParts - 1;
  static constexpr int kColumns = kLast ? kPartColumns + 8 : kPartColumns;
  float step[kColumns / 2];

  __device__ __forceinline__ void multiply(const Weights& p, uint32_t turned) { multiply_values<kColumns>(step, p, turned + kPartColumns / 16 * kOf * kPanelKeys); }

  // It has been waited for.
  __device__ __forceinline__ void add_to(Rows& rows) {
    ptx::hold(step);
#pragma unroll
    for (int i = 0; i < kPartColumns / 2; ++i) rows.o[kOf][i] = fmaf(rows.o[kOf][i], rows.keep[i / 2 % 2], step[i]);
    if constexpr (kLast) {
#pragma unroll
      for (int half = 0; half < 2; ++half) rows.sum[half] = fmaf(rows.sum[half], rows.keep[half], step[kPartColumns / 2 + 2 * half]);
    }
  }
};

// O and the sums of P of one step, part after part. `beside` is done while one is multiplied.
template <int kOf = 0, typename Beside>
__device__ __forceinline__ void multiply_parts(Rows& rows, const Weights& p, uint32_t turned, Beside beside) {
  Part<kOf> part;
  part.multiply(p, turned);
  beside(part);
  ptx::wgmma_wait_group<0>();
  part.add_to(rows);
  if constexpr (!part.kLast) multiply_parts<kOf + 1>(rows, p, turned, beside);
}

// The same with nothing to do beside: each part is multiplied while the one before is added.
template <int kOf>
__device__ __forceinline__ void multiply_from(Part<kOf>& part, Rows& rows, const Weights& p, uint32_t turned) {
  if constexpr (part.kLast) {
    ptx::wgmma_wait_group<0>();
    part.add_to(rows);
  } else {
    Part<kOf + 1> next;
    next.multiply(p, turned);
    ptx::wgmma_wait_group<1>();
    part.add_to(rows);
    multiply_from(next, rows, p, turned);
  }
}

__device__ __forceinline__ void multiply_parts(Rows& rows, const Weights& p, uint32_t turned) {
  Part<0> first;
  first.multiply(p, turned);
  multiply_from(first, rows, p, turned);
}

// `now`, which is 1 at most, must be known before. The assembler keeps the order of arrivals and waits, but not of arithmetic and waits.
__device__ __forceinline__ void arrive_warp(uint64_t* barrier, float now = 0.0f) {
  __syncwarp();
  if (threadIdx.x % 32 == 0 && !(now > 1.0f)) ptx::mbarrier_arrive(barrier);
}

// Lets a warpgroup begin behind those before it. Side by side they would ask for products together and then for exponentials together, in every step: no
// one falls back by itself, and none catches up.
__device__ __forceinline__ void stagger(const Problem& p, const Schedule& schedule, const Turn& turn, const Ring& ring, int group) {
  if (!schedule.has(turn) || steps_of(schedule.tile(p, turn)) == 0) return;
  ptx::mbarrier_try_wait_parity(&ring.barrier->k_full[0], 0);
  const uint32_t begin = ptx::clock();
  while (ptx::clock() - begin < static_cast<uint32_t>(group * knob::kStagger)) {}
  __syncwarp();
}

// The steps of a tile from the last keys to the first. `start` waits for the barriers, and with several warpgroups for registers.
template <typename Start>
__device__ __forceinline__ void compute(const Problem& p, const Ring& ring, const TensorMap* q_map, Start start) {
  if constexpr (!kSoon) start();
  const Schedule schedule(p);
  Turn turn(schedule.in_pairs);
  Descales descales;  // of the tile that Q was asked for last
  Queries<knob::kQInShared> q;
  const auto ask_queries = [&] {
    if (kParts > 1) descales.q = descales.k = 0.0f;  // else the compiler keeps what they were, for which a wide O leaves no registers
    if (!schedule.has(turn)) return;
    const Tile tile = schedule.tile(p, turn);
    q.ask(tile, p.queries);
    if constexpr (!knob::kQInShared) descales.load(p, tile.head);
  };
  if constexpr (kSoon) {
    if constexpr (knob::kQInShared) {
      q.place(ring, group_of_thread(), q_map);
      q.initialize();
    }
    ask_queries();
    start();
  }
  const int group = group_of_thread();
  const uint32_t k = ptx::wgmma_place(ring.k), turned = ptx::wgmma_place(ring.turned);
  Place k_place, v_place;
  q.place(ring, group, q_map);
  if constexpr (!kSoon) ask_queries();
  if (knob::kStagger > 0 && group > 0) stagger(p, schedule, turn, ring, group);
  while (schedule.has(turn)) {
    const Tile tile = schedule.tile(p, turn);
    if constexpr (knob::kQInShared) descales.load(p, tile.head);  // before that O has all registers
    const float scores_log2 = descales.scores_log2(p);
    // What the first row of the warpgroup sees, and so all do.
    const int all_see = p.causal ? min(p.keys, tile.visible + first_row_of(group)) : p.keys;
    q.wait();
    Rows rows;
    rows.clear();
    float s[kScores];
    Weights weights;

    // With USE_OVERLAP the place of K is given back only when the greatest scores are known, so that these are found while P * V is under way: else the
    // assembler would wait for that first. Four warpgroups are faster so, too.
    const auto find_base = [&](int step, float (&keep)[2]) {
      ptx::hold(s);
      if ((step + 1) * kKeys > all_see) {
        const Lane lane;
        const int visible = p.causal ? tile.visible + lane.row : p.keys, before = step * kKeys + 2 * lane.t;
        const int end[2] = {min(p.keys, visible) - before, min(p.keys, visible + 8) - before};
        mask(s, end);
      }
      lower_base(s, rows, keep, scores_log2);
      arrive_warp(&ring.barrier->k_empty[k_place.slot], knob::kOverlap || kConsumers > 3 ? keep[1] : 0.0f);
      if (knob::kOverlap) k_place.advance();
    };
    const auto weigh = [&](int step) {
      find_base(step, rows.keep);
      scale(s, rows, scores_log2);
      exponentiate(s);
      weights.pack(s);
    };
    const auto ask_scores = [&] {
      ptx::mbarrier_try_wait_parity(&ring.barrier->k_full[k_place.slot], k_place.parity);
      multiply_keys(s, q, k + k_place.slot * (kTileBytes / 16));
    };
    const auto values_of = [&] {
      ptx::mbarrier_try_wait_parity(&ring.barrier->turned_full[v_place.slot], v_place.parity);
      return turned + v_place.slot * (kTurnedBytes / 16);
    };
    const auto values_done = [&] {
      arrive_warp(&ring.barrier->turned_empty[v_place.slot]);
      v_place.advance();
      if (!knob::kOverlap) k_place = v_place;
    };

    int step = steps_of(tile) - 1;
    // Of steps that are shared out every other one is the other's.
    const auto pass = [&] {
      if (!kSharesKeys || step < 0) return;
      v_place.advance();
      k_place = v_place;
      --step;
    };
    if (group > 0) pass();
    if constexpr (knob::kSkipMasked) {
      const int one_sees = p.causal ? min(p.keys, tile.visible + first_row_of(group) + 63) : p.keys;
#pragma unroll 1
      for (; step >= 0 && step * kKeys >= one_sees; --step) {
        ptx::mbarrier_try_wait_parity(&ring.barrier->k_full[k_place.slot], k_place.parity);
        arrive_warp(&ring.barrier->k_empty[k_place.slot]);
        if (knob::kOverlap) k_place.advance();
        values_of();
        values_done();
      }
    }
    if constexpr (knob::kOverlap) {
      if (step >= 0) {
        ask_scores();
        ptx::wgmma_wait_group<0>();
        weigh(step);
      }
#pragma unroll 1
      for (; step > 0; --step) {
        float keep[2];
        ask_scores();
        multiply_parts(rows, weights, values_of(), [&](auto part) {
          constexpr int kFirst = kScores / kParts * decltype(part)::kNumber, kEnd = kFirst + kScores / kParts;
          if constexpr (kFirst == 0) {
            ptx::wgmma_wait_group<1>();
            find_base(step - 1, keep);
          }
          scale<kFirst, kEnd>(s, rows, scores_log2);
          exponentiate<kFirst, kEnd>(s);
        });
        values_done();
        rows.keep[0] = keep[0], rows.keep[1] = keep[1];
        weights.pack(s);
      }
      if (step == 0) {
        multiply_parts(rows, weights, values_of());
        values_done();
      }
    } else {
#pragma unroll 1
      while (step >= 0) {
        ask_scores();
        ptx::wgmma_wait_group<0>();
        weigh(step);
        multiply_parts(rows, weights, values_of());
        values_done();
        --step;
        pass();
      }
    }
    // The products have read Q of this tile; that of the next one comes while O is written.
    const Tile done = schedule.tile(p, turn.anew());
    const float descale = descales.v;
    if constexpr (kSharesKeys) merge(rows, ring, group, turn.round);
    turn.next(schedule.in_pairs);
    ask_queries();
    write(rows, done, descale, p.queries, kSharesKeys ? group : 0);
  }
}

// ---- the kernel ----------------------------------------------------------------------------------------------------------

// By one thread.
__device__ __forceinline__ void initialize(Barriers& barrier) {
  constexpr int kReaders = kSharesKeys ? 1 : kConsumers;  // of a step
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) {
    if (stage > 0 || !kSoon) ptx::mbarrier_init(&barrier.k_full[stage], 1);
    ptx::mbarrier_init(&barrier.k_empty[stage], 4 * kReaders);
    if (stage > 0 || !kSoon) ptx::mbarrier_init(&barrier.v_full[stage], 1);
    ptx::mbarrier_init(&barrier.v_empty[stage], 4);
    ptx::mbarrier_init(&barrier.turned_full[stage], 4);
    ptx::mbarrier_init(&barrier.turned_empty[stage], 4 * kReaders);
  }
  if constexpr (knob::kQInShared && !kSoon) {
#pragma unroll
    for (int group = 0; group < kConsumers; ++group) ptx::mbarrier_init(&barrier.q_full[group], 1);
  }
  ptx::fence_mbarrier_init();
}

// All threads of the block, from different places in the code: __syncthreads would have to be one for all.
__device__ __forceinline__ void meet() { ptx::barrier_sync(0, kThreads); }

// The barriers are made by a thread that would wait for K, while the one that asks for it finds out where it is.
__device__ __forceinline__ void attend(const Problem& problem, const TensorMap* q_map, const TensorMap* k_map, const TensorMap* v_map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const Ring ring(memory);
  if (!kSoon ? threadIdx.x < 128 : __shfl_sync(0xFFFFFFFF, threadIdx.x / 128, 0) == 0) {
    if (threadIdx.x == 0) {
      if constexpr (knob::kQInShared) ptx::prefetch_tensormap(q_map);
      ptx::prefetch_tensormap(k_map);
      ptx::prefetch_tensormap(v_map);
    }
    const Schedule schedule(problem);
    Walk ahead(problem, schedule);
    if (kSoon && threadIdx.x == 0) bring_first(ring, ahead, k_map, v_map);
    meet();
    if constexpr (kConsumers > 1) ptx::setmaxnreg_dec<kProducerRegisters>();
    if (!kSoon && threadIdx.x == 0 && ahead.more()) bring(ring, ahead, k_map, v_map);
    produce(problem, schedule, ring, k_map, v_map, ahead);
  } else {
    if (threadIdx.x == 128) initialize(*ring.barrier);
    write_ones(ring);
    compute(problem, ring, q_map, [] {
      meet();
      if constexpr (kConsumers > 1) ptx::setmaxnreg_inc<kConsumerRegisters>();
    });
  }
}

}  // namespace attention
