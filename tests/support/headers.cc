// SPDX-License-Identifier: Apache-2.0
// Empty: a precompiled header needs a source to belong to.
