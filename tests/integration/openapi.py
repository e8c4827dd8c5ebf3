# SPDX-License-Identifier: Apache-2.0
"""Checks answers against an OpenAPI description, with as much of JSON Schema as ours uses. An
unknown keyword is an error, so that nothing in the description goes unchecked."""

import json
import re

# Keywords that constrain values, and those that do not.
CHECKED = {"$ref", "type", "enum", "required", "properties", "additionalProperties", "items",
           "maxItems", "maxProperties", "minimum"}
IGNORED = {"default", "description", "example"}

# Sent by HTTP itself.
ALWAYS_SENT = {"connection", "content-length", "content-type", "date"}

TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "null": lambda value: value is None,
}

METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}


class Description:
    """The service's description of one of its listeners. Remembers which parts were seen to be
    true."""

    def __init__(self, document, admin=False):
        self.document = document
        self.admin = admin
        self.seen = set()  # (method, path, status) of all answers that were checked.
        # Paths of the admin API declare that they are elsewhere.
        self.paths = {path: {method: operation for method, operation in item.items()
                             if method in METHODS}
                      for path, item in document["paths"].items() if ("servers" in item) == admin}
        self.patterns = [
            (re.compile("^" + re.sub(r"\{[^}]+\}", "[^/]+", path) + "$"), path)
            for path in self.paths]

    def operations(self):
        """(method, path, operation) of everything that is described."""
        return [(method.upper(), path, operation) for path, operations in self.paths.items()
                for method, operation in operations.items()]

    def promised(self):
        """(method, path, status) of all answers that are described."""
        return {(method, path, int(status)) for method, path, operation in self.operations()
                for status in operation["responses"]}

    def resolve(self, node):
        while "$ref" in node:
            part = self.document
            for name in node["$ref"].removeprefix("#/").split("/"):
                part = part[name]
            node = part
        return node

    def path_of(self, target):
        path = target.split("?")[0]
        if path in self.paths:
            return path
        return next((known for pattern, known in self.patterns if pattern.match(path)), None)

    def response_for(self, method, target, status):
        responses = self.document["components"]["responses"]
        path = self.path_of(target)
        # Whoever may not ask does not learn what exists.
        refusals = {401: "AdminUnauthorized", 403: "AdminForbidden"} if self.admin else {}
        operations = self.paths.get(path, {})
        if status in refusals and method.lower() not in operations:
            return responses[refusals[status]]
        if path is None:
            if status == 404:
                return responses["NotFound"]
            raise AssertionError(f"{target} is not described, but answered with {status}")
        operation = operations.get(method.lower())
        if operation is None and method == "HEAD":
            operation = operations.get("get")
        if operation is None:
            if status == 405:
                return responses["MethodNotAllowed"]
            raise AssertionError(f"{method} {path} is not described, but answered with {status}")
        if str(status) not in operation["responses"]:
            raise AssertionError(f"{method} {path} is not described to answer with {status}")
        self.seen.add((method, path, status))
        return self.resolve(operation["responses"][str(status)])

    def check(self, method, target, answer):
        where = f"{method} {target} -> {answer.status}"
        response = self.response_for(method, target, answer.status)
        headers = response.get("headers", {})
        described = {name.lower() for name in headers} | ALWAYS_SENT
        unknown = {name.lower() for name in answer.headers.keys()} - described
        if unknown:
            raise AssertionError(f"{where}: the headers {unknown} are not described")
        for name, header in headers.items():
            value = answer.header(name)
            if value is not None:
                schema = self.resolve(header)["schema"]
                if schema["type"] == "integer":
                    value = int(value)
                self.validate(value, schema, f"{where}: {name}")
        if method == "HEAD":
            if answer.body:
                raise AssertionError(f"{where}: an answer to HEAD with a body")
            return
        if "content" not in response:
            if answer.body or answer.header("Content-Type"):
                raise AssertionError(f"{where}: no body is described")
            return
        content_type = answer.header("Content-Type").split(";")[0]
        if content_type not in response["content"]:
            raise AssertionError(f"{where}: {content_type} is not described")
        schema = response["content"][content_type]["schema"]
        text = answer.body.decode("utf-8")
        value = json.loads(text) if content_type.endswith("json") else text
        self.validate(value, schema, where)

    def check_examples(self):
        """Examples match their schema, and every JSON answer, except errors of its own kind, has
        one."""
        for method, path, operation in self.operations():
            contents = [("request", operation.get("requestBody", {}).get("content", {}))]
            contents += [(status, self.resolve(response).get("content", {}))
                         for status, response in operation["responses"].items()]
            for what, content in contents:
                described = content.get("application/json")
                if described is None or path == "/openapi.json":
                    continue
                where = f"{method} {path}: the example of {what}"
                if "example" not in described:
                    raise AssertionError(f"{where} is missing")
                self.validate(described["example"], described["schema"], where)

    def validate(self, value, schema, where):
        schema = self.resolve(schema)
        unknown = schema.keys() - CHECKED - IGNORED
        if unknown:
            raise AssertionError(f"{where}: the schema has {unknown}")

        def fail(what):
            raise AssertionError(f"{where}: {json.dumps(value)[:300]} {what}")

        types = schema.get("type", [])
        types = types if isinstance(types, list) else [types]
        if types and not any(TYPES[name](value) for name in types):
            fail(f"is not of type {' or '.join(types)}")
        if "enum" in schema and value not in schema["enum"]:
            fail(f"is not one of {schema['enum']}")
        if "minimum" in schema and value < schema["minimum"]:
            fail(f"is less than {schema['minimum']}")
        if "maxItems" in schema and len(value) > schema["maxItems"]:
            fail(f"has more than {schema['maxItems']} items")
        if "maxProperties" in schema and len(value) > schema["maxProperties"]:
            fail(f"has more than {schema['maxProperties']} properties")
        if isinstance(value, list) and "items" in schema:
            for number, item in enumerate(value):
                self.validate(item, schema["items"], f"{where}[{number}]")
        if isinstance(value, dict):
            self.validate_object(value, schema, where, fail)

    def validate_object(self, value, schema, where, fail):
        for name in schema.get("required", []):
            if name not in value:
                fail(f"lacks {name}")
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name, member in value.items():
            if name in properties:
                self.validate(member, properties[name], f"{where}.{name}")
            elif others is False:
                fail(f"has {name}, which is not described")
            elif isinstance(others, dict):
                self.validate(member, others, f"{where}.{name}")
