// SPDX-License-Identifier: Apache-2.0
#include "grpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpc/reflection/v1/reflection.pb.h>
#include <grpc/reflection/v1alpha/reflection.pb.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "grpc/status.h"

namespace sluice::grpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

template <typename Response>
void SetError(Response& response, StatusCode code, std::string message) {
  response.mutable_error_response()->set_error_code(std::to_underlying(code));
  response.mutable_error_response()->set_error_message(std::move(message));
}

// The file and all its dependencies, itself first.
std::vector<const FileDescriptor*> Closure(const FileDescriptor* file) {
  std::vector<const FileDescriptor*> files = {file};
  for (std::size_t i = 0; i < files.size(); ++i) {
    for (int j = 0; j < files[i]->dependency_count(); ++j) {
      const FileDescriptor* dependency = files[i]->dependency(j);
      if (std::ranges::find(files, dependency) == files.end()) files.push_back(dependency);
    }
  }
  return files;
}

const FileDescriptor* FileOfExtension(const std::string& type_name, int number) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const Descriptor* type = pool.FindMessageTypeByName(type_name);
  const FieldDescriptor* extension = type ? pool.FindExtensionByNumber(type, number) : nullptr;
  return extension ? extension->file() : nullptr;
}

template <typename Response>
void SetExtensionNumbers(Response& response, const std::string& type_name) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const Descriptor* type = pool.FindMessageTypeByName(type_name);
  if (!type) {
    SetError(response, StatusCode::kNotFound, text::Cat("not found: ", text::Quote(type_name)));
    return;
  }
  auto& numbers = *response.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(type_name);
  std::vector<const FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  for (const FieldDescriptor* extension : extensions) {
    numbers.add_extension_number(extension->number());
  }
}

}  // namespace

Reflection::Reflection(std::span<const std::string_view> services)
    : services_(services.begin(), services.end()) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  for (const std::string& service : services_) {
    for (const FileDescriptor* file : Closure(pool.FindFileContainingSymbol(service))) {
      google::protobuf::FileDescriptorProto proto;
      file->CopyTo(&proto);
      files_[file] = proto.SerializeAsString();
    }
  }
}

// With all its dependencies, so that a tool need not ask again.
template <typename Response>
void Reflection::SetFile(Response& response, const FileDescriptor* file,
                         std::string_view wanted) const {
  if (!files_.contains(file)) {
    SetError(response, StatusCode::kNotFound, text::Cat("not found: ", text::Quote(wanted)));
    return;
  }
  for (const FileDescriptor* part : Closure(file)) {
    response.mutable_file_descriptor_response()->add_file_descriptor_proto(files_.at(part));
  }
}

template <typename Request, typename Response>
Expected<std::string> Reflection::AnswerAs(std::string_view message) const {
  Request request;
  if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return std::unexpected(
        Error{ErrorCode::kInvalidInput, "the message is not a ServerReflectionRequest"});
  }
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      SetFile(response, pool.FindFileByName(request.file_by_filename()),
              request.file_by_filename());
      break;
    case Request::kFileContainingSymbol:
      SetFile(response, pool.FindFileContainingSymbol(request.file_containing_symbol()),
              request.file_containing_symbol());
      break;
    case Request::kFileContainingExtension: {
      const auto& wanted = request.file_containing_extension();
      SetFile(response, FileOfExtension(wanted.containing_type(), wanted.extension_number()),
              text::Cat("extension ", wanted.extension_number(), " of ", wanted.containing_type()));
      break;
    }
    case Request::kAllExtensionNumbersOfType:
      SetExtensionNumbers(response, request.all_extension_numbers_of_type());
      break;
    case Request::kListServices:
      for (const std::string& name : services_) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case Request::MESSAGE_REQUEST_NOT_SET:
      SetError(response, StatusCode::kInvalidArgument, "the request asks for nothing");
      break;
  }
  return response.SerializeAsString();
}

Expected<std::string> Reflection::Answer(ReflectionVersion version,
                                         std::string_view message) const {
  namespace v1 = ::grpc::reflection::v1;
  namespace v1alpha = ::grpc::reflection::v1alpha;
  if (version == ReflectionVersion::kV1) {
    return AnswerAs<v1::ServerReflectionRequest, v1::ServerReflectionResponse>(message);
  }
  return AnswerAs<v1alpha::ServerReflectionRequest, v1alpha::ServerReflectionResponse>(message);
}

}  // namespace sluice::grpc
