/* Compares what attune_internal.h declares of the driver with NVIDIA's header. It is compiled only. */
#define CUresult own_result
#define CUdevice own_device
#define CUcontext own_context
#define CUmodule own_module
#define CUfunction own_function
#define CUstream own_stream
#include "attune_internal.h"
#undef CUresult
#undef CUdevice
#undef CUcontext
#undef CUmodule
#undef CUfunction
#undef CUstream
#include <cuda.h>

#define SAME(own, theirs) _Static_assert((int)(own) == (int)(theirs), #own)

SAME(DEVICE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(DEVICE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(DEVICE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(FUNCTION_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(FUNCTION_NON_PORTABLE_CLUSTER, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
SAME(LOAD_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME(LOAD_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME(LAUNCH_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(MAP_U8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME(MAP_F16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(MAP_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(MAP_L2_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
SAME(MAP_L2_256B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(0, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(0, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
SAME(1, CU_TENSOR_MAP_SWIZZLE_32B);
SAME(3, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(sizeof(launch_config), sizeof(CUlaunchConfig));
SAME(offsetof(launch_config, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
SAME(offsetof(launch_config, stream), offsetof(CUlaunchConfig, hStream));
SAME(offsetof(launch_config, attributes), offsetof(CUlaunchConfig, attrs));
SAME(offsetof(launch_config, attribute_count), offsetof(CUlaunchConfig, numAttrs));
SAME(sizeof(launch_attribute), sizeof(CUlaunchAttribute));
SAME(offsetof(launch_attribute, value), offsetof(CUlaunchAttribute, value));
SAME(offsetof(CUlaunchAttributeValue, cooperative), 0);
SAME(sizeof(own_result), sizeof(CUresult));
SAME(sizeof(own_device), sizeof(CUdevice));
SAME(sizeof(uint64_t), sizeof(CUdeviceptr));
SAME(128, sizeof(CUtensorMap));
