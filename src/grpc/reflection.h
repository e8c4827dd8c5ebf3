// SPDX-License-Identifier: Apache-2.0
// grpc.reflection, v1 and v1alpha: tells tools what this server offers, from the compiled-in
// descriptors.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/error.h"

namespace google::protobuf {
class FileDescriptor;
}

namespace sluice::grpc {

enum class ReflectionVersion { kV1, kV1Alpha };

// Knows these services and all files that they depend on, and nothing else that is compiled in.
// Constant after construction.
class Reflection {
 public:
  explicit Reflection(std::span<const std::string_view> services);

  // The reply to one serialized ServerReflectionRequest. Error: kInvalidInput if it is not such a
  // message.
  Expected<std::string> Answer(ReflectionVersion version, std::string_view message) const;

 private:
  template <typename Request, typename Response>
  Expected<std::string> AnswerAs(std::string_view message) const;
  template <typename Response>
  void SetFile(Response& response, const google::protobuf::FileDescriptor* file,
               std::string_view wanted) const;

  std::vector<std::string> services_;
  // Serialized once: a small question about a large file should cost no more than a copy.
  std::map<const google::protobuf::FileDescriptor*, std::string> files_;
};

}  // namespace sluice::grpc
