# Writes OUTPUT, a C file with the commit that SOURCE is at as build_commit, empty outside of a repository, and CUDA as build_cuda. The file stays as it is if
# nothing changed: cmake -DSOURCE= -DCUDA= -DOUTPUT= -P
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude=* --abbrev=12 OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#include \"launcher/cli/commands.h\"\nconst char build_commit[] = \"${commit}\";\nconst char build_cuda[] = \"${CUDA}\";\n")
