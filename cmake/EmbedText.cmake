# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUT=file -DOUTPUT=file.cc -DHEADER=header -DNAMESPACE=ns -DNAME=kName -P EmbedText.cmake
# Writes a source file that defines `const std::string_view NAME` as the text of INPUT.
file(READ ${INPUT} text)
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace ${NAMESPACE} {
const std::string_view ${NAME} = R\"__TEXT__(${text})__TEXT__\";
}
")
