// Elements: their types, and the order of work in a stream.

#include "cublas.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t bytes_of(int type) {
  switch (type) {
    case F64: case C32: return 8;
    case F16: case BF16: return 2;
    case I8: case U8: case E4M3: case E5M2: return 1;
    case C64: return 16;
    default: return 4;
  }
}

bool is_complex(int type) { return type == C32 || type == C64; }

// small_float decodes a floating-point number with an exponent and a mantissa of some bits.
static double small_float(unsigned bits, int exponent_bits, int mantissa_bits, bool infinities) {
  const unsigned mantissa = bits & ((1u << mantissa_bits) - 1), exponent = bits >> mantissa_bits & ((1u << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1, scale = ldexp(1, -mantissa_bits);
  if (exponent == (1u << exponent_bits) - 1) {
    if (infinities) return mantissa == 0 ? sign * INFINITY : NAN;
    if (mantissa == (1u << mantissa_bits) - 1) return NAN;
  }
  if (exponent == 0) return sign * ldexp(mantissa * scale, 1 - bias);
  return sign * ldexp(1 + mantissa * scale, (int)exponent - bias);
}

// round_small encodes a number, rounded to nearest even.
static unsigned round_small(double value, int exponent_bits, int mantissa_bits, double greatest, bool infinities) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const unsigned sign = signbit(value) ? 1u << (exponent_bits + mantissa_bits) : 0, all = (1u << exponent_bits) - 1;
  const double size = fabs(value);
  if (isnan(value)) return sign | all << mantissa_bits | ((1u << mantissa_bits) - 1);
  int exponent = 0;
  if (size > 0 && isfinite(size)) frexp(size, &exponent);
  exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
  const double rounded = isfinite(size) ? ldexp(nearbyint(ldexp(size, mantissa_bits - exponent)), exponent - mantissa_bits) : size;
  if (rounded > greatest) {
    if (infinities) return sign | all << mantissa_bits;
    return sign | all << mantissa_bits | ((1u << mantissa_bits) - 2);  // E4M3 saturates
  }
  if (rounded == 0) return sign;
  frexp(rounded, &exponent);
  exponent -= 1;
  if (exponent < 1 - bias) return sign | (unsigned)ldexp(rounded, bias - 1 + mantissa_bits);
  return sign | (unsigned)(exponent + bias) << mantissa_bits | (unsigned)ldexp(ldexp(rounded, -exponent) - 1, mantissa_bits);
}

struct Number load_element(int type, const void *at, int64_t i) {
  const void *data = host_view(at);
  switch (type) {
    case F32: return (struct Number){((const float *)data)[i], 0};
    case F64: return (struct Number){((const double *)data)[i], 0};
    case F16: return (struct Number){small_float(((const uint16_t *)data)[i], 5, 10, true), 0};
    case BF16: {
      const uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
      float value;
      memcpy(&value, &bits, 4);
      return (struct Number){value, 0};
    }
    case I8: return (struct Number){((const int8_t *)data)[i], 0};
    case U8: return (struct Number){((const uint8_t *)data)[i], 0};
    case I32: return (struct Number){((const int32_t *)data)[i], 0};
    case C32: return (struct Number){((const float *)data)[2 * i], ((const float *)data)[2 * i + 1]};
    case C64: return (struct Number){((const double *)data)[2 * i], ((const double *)data)[2 * i + 1]};
    case E4M3: return (struct Number){small_float(((const uint8_t *)data)[i], 4, 3, false), 0};
    case E5M2: return (struct Number){small_float(((const uint8_t *)data)[i], 5, 2, true), 0};
  }
  return (struct Number){0, 0};
}

static double clamp(double value, double low, double high) { return value < low ? low : value > high ? high : value; }

void store_element(int type, void *at, int64_t i, struct Number v) {
  void *data = host_view(at);
  switch (type) {
    case F32: ((float *)data)[i] = (float)v.re; break;
    case F64: ((double *)data)[i] = v.re; break;
    case F16: ((uint16_t *)data)[i] = (uint16_t)round_small(v.re, 5, 10, 65504, true); break;
    case BF16: ((uint16_t *)data)[i] = (uint16_t)round_small(v.re, 8, 7, 3.3895313892515355e38, true); break;
    case I8: ((int8_t *)data)[i] = (int8_t)clamp(nearbyint(v.re), -128, 127); break;
    case U8: ((uint8_t *)data)[i] = (uint8_t)clamp(nearbyint(v.re), 0, 255); break;
    case I32: ((int32_t *)data)[i] = (int32_t)(int64_t)v.re; break;
    case C32: ((float *)data)[2 * i] = (float)v.re, ((float *)data)[2 * i + 1] = (float)v.im; break;
    case C64: ((double *)data)[2 * i] = v.re, ((double *)data)[2 * i + 1] = v.im; break;
    case E4M3: ((uint8_t *)data)[i] = (uint8_t)round_small(v.re, 4, 3, 448, false); break;
    case E5M2: ((uint8_t *)data)[i] = (uint8_t)round_small(v.re, 5, 2, 57344, true); break;
  }
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn host, void *data);
CUresult cuStreamIsCapturing(CUstream stream, int *status);

cublasStatus_t enqueue(struct Handle *h, void (*run)(void *), const void *arguments, size_t bytes) {
  if (h == NULL) return CUBLAS_NOT_INITIALIZED;
  CUresult *copy = malloc(bytes);
  if (copy == NULL) return CUBLAS_ALLOC_FAILED;
  memcpy(copy, arguments, bytes);
  *copy = CUDA_SUCCESS;
  int captures = 0;
  cuStreamIsCapturing(h->stream, &captures);
  const CUresult status = cuLaunchHostFunc(h->stream, run, copy);
  const bool failed = status != CUDA_SUCCESS || *copy != CUDA_SUCCESS;
  if (!captures) free(copy);  // a graph may run it again
  return failed ? CUBLAS_EXECUTION_FAILED : CUBLAS_SUCCESS;
}
