// Numbers of one type, read and written 16 bytes at once: what every source of kernels begins with. They are compiled at
// run time for NUMBER, which is Float, Bfloat16 or Half, and include nothing, since CUDA's headers may be missing then.

#ifdef __CUDA_ARCH__
#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__
#define UNROLL _Pragma("unroll")
#else  // the CPU of a test
#define DEVICE inline
#define KERNEL inline
#define UNROLL
#endif

struct alignas(16) Pack {
  unsigned int words[4];
};

// In one piece, which the compiler does not see by itself.
DEVICE Pack load(const Pack* from) {
#ifdef __CUDA_ARCH__
  const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
  return {{words.x, words.y, words.z, words.w}};
#else
  return *from;
#endif
}

struct Float {
  static constexpr int kWide = 4;         // numbers of a pack
  static constexpr float kRoundsTo0 = 0;  // the largest number that does

  static DEVICE void unpack(const Pack& from, float (&to)[kWide]) {
    for (int i = 0; i < kWide; ++i) to[i] = __uint_as_float(from.words[i]);
  }
  static DEVICE Pack pack(const float (&from)[kWide]) {
    Pack to;
    for (int i = 0; i < kWide; ++i) to.words[i] = __float_as_uint(from[i]);
    return to;
  }
};

struct Bfloat16 {
  static constexpr int kWide = 8;
  static constexpr float kRoundsTo0 = 0x1p-134f;

  static DEVICE void unpack(const Pack& from, float (&to)[kWide]) {
    for (int i = 0; i < kWide / 2; ++i) {
      to[2 * i] = __uint_as_float(from.words[i] << 16);
      to[2 * i + 1] = __uint_as_float(from.words[i] & 0xffff0000U);
    }
  }
  static DEVICE Pack pack(const float (&from)[kWide]) {
    Pack to;
    for (int i = 0; i < kWide / 2; ++i) to.words[i] = both(from[2 * i], from[2 * i + 1]);
    return to;
  }

 private:
  static DEVICE unsigned int both(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned int word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
#else
    return rounded(low) | rounded(high) << 16;
#endif
  }
  static DEVICE unsigned int rounded(float value) {
    const unsigned int bits = __float_as_uint(value);
    if (value != value) return 0x7fffU;
    return (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
  }
};

struct Half {
  static constexpr int kWide = 8;
  static constexpr float kRoundsTo0 = 0x1p-25f;

  static DEVICE void unpack(const Pack& from, float (&to)[kWide]) {
    for (int i = 0; i < kWide / 2; ++i) {
      to[2 * i] = widened(static_cast<unsigned short>(from.words[i]));
      to[2 * i + 1] = widened(static_cast<unsigned short>(from.words[i] >> 16));
    }
  }
  static DEVICE Pack pack(const float (&from)[kWide]) {
    Pack to;
    for (int i = 0; i < kWide / 2; ++i)
      to.words[i] = rounded(from[2 * i]) | static_cast<unsigned int>(rounded(from[2 * i + 1])) << 16;
    return to;
  }

 private:
#ifdef __CUDA_ARCH__
  static DEVICE float widened(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  static DEVICE unsigned short rounded(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
#else
  static float widened(unsigned short bits) { return half_to_float(bits); }
  static unsigned short rounded(float value) { return float_to_half(value); }
#endif
};

using Number = NUMBER;
constexpr int kWide = Number::kWide;
