// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

// These functions allocate nothing, cannot fail and take 70 ns for an API key. The ones that
// OpenSSL recommends instead allocate for every digest, and take half as long again even if
// everything reusable is kept.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <array>

#include "base/hex.h"

namespace sluice {

void AppendSha256(std::string& out, std::string_view text) {
  SHA256_CTX context;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256_Init(&context);
  SHA256_Update(&context, text.data(), text.size());
  SHA256_Final(digest.data(), &context);
  std::array<char, 2 * digest.size()> digits;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digits[2 * i] = text::kLowerHex[digest[i] >> 4U];
    digits[2 * i + 1] = text::kLowerHex[digest[i] & 15U];
  }
  out.append(digits.data(), digits.size());
}

}  // namespace sluice
