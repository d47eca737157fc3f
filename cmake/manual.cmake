# Completes the manual page: puts the options that PROGRAM prints in place of the line @OPTIONS@ of FILE, and writes OUTPUT.
execute_process(COMMAND ${PROGRAM} completion man OUTPUT_VARIABLE OPTIONS COMMAND_ERROR_IS_FATAL ANY)
configure_file(${FILE} ${OUTPUT} @ONLY)
